"""The web page on a port of this machine, for tests; as a program, with a tiny model, until its input ends."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from onlstm_hf import build_word_tokenizer
from onlstm_hf.demo.models import DemoModels
from tests.helpers.tiny_models import MODEL_TYPES

WORDS = ["<eos>", "<unk>", "the", "cat", "sat", "on", "mat", "old", "dog", "saw", "dogs", "it", "a"]


def tiny_checkpoints():
    """A tiny model of each type with its tokenizer, by the name of the type."""
    tokenizer = build_word_tokenizer(vocabulary=WORDS, pad_token="<eos>")
    return {name: (kind.make(eos_token_id=0), tokenizer) for name, kind in MODEL_TYPES.items()}


@contextmanager
def running_server(app, **options) -> Iterator:
    """A server of an app (see `build_server`) in a thread of this process, while the block runs."""
    from onlstm_hf.demo.app import build_server

    server = build_server(app, "127.0.0.1", 0, **options)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(timeout=60)


def port_of(server) -> int:
    return server.servers[0].sockets[0].getsockname()[1]


def wait_until(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


if __name__ == "__main__":
    from onlstm_hf.demo.app import build_app

    app = build_app(DemoModels(tiny_checkpoints()), allowed_hosts=["parser.example.org"])
    with running_server(app) as server:
        print(port_of(server), flush=True)
        sys.stdin.read()
