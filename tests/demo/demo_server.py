"""The web page on a port of this machine, for tests."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def running_demo(names: Sequence[str]) -> Iterator[str]:
    """The address of a page with these models, while the block runs."""
    import uvicorn

    from onlstm_hf.demo import build_app

    options = {"host": "127.0.0.1", "port": 0, "log_level": "warning", "timeout_graceful_shutdown": 1}
    server = uvicorn.Server(uvicorn.Config(build_app(names), **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("the server did not start")
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
