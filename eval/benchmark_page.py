"""How quickly the web page answers: alone, beside a client who asks for wide pictures, and beside a greedy one.

    python eval/benchmark_page.py
    python eval/benchmark_page.py model_cards/prpn-ptb-small

Each client has a loopback address of its own, 127.0.0.1 and so on, which needs Linux. It prints seconds.
"""

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.demo.app import build_app, build_server
from onlstm_hf.demo.models import MAX_SENTENCES, MAX_TOKENS, DemoModels
from onlstm_hf.utils.checkpoints import default_model
from onlstm_hf.utils.programs import run_program

SENTENCE = " ".join(["the company said it expects to report a loss and"] * 2)
WIDEST = " ".join(["w" * 22] * 40)
LONGEST = "\n".join([" ".join(["company"] * (MAX_TOKENS // MAX_SENTENCES))] * MAX_SENTENCES)
NUM_PICTURES, NUM_HONEST, NUM_GREEDY = 20, 20, 300


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", metavar="PATH_OR_NAME", help="checkpoint (that of `onlstm-hf demo`)")
    options = parser.parse_args(arguments)
    return run_program("benchmark_page.py", lambda: measure(options.model or default_model()))


def measure(name: str) -> None:
    """Starts the server in a thread and prints the figures."""
    server = build_server(build_app(DemoModels.load([name])), "127.0.0.1", 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    def ask(target: str, client: int, **fields: str) -> tuple[int, float, int]:
        """Status, seconds and bytes of an answer."""
        start = time.perf_counter()
        source = (f"127.0.0.{client}", 0)
        try:
            with closing(HTTPConnection("127.0.0.1", port, timeout=600, source_address=source)) as connection:
                connection.request("GET", f"{target}?{urlencode(fields)}")
                answer = connection.getresponse()
                return answer.status, time.perf_counter() - start, len(answer.read())
        except (HTTPException, OSError):  # the server drops who has too many connections
            return 0, time.perf_counter() - start, 0

    def parse(client: int) -> float:
        status, seconds, _ = ask("/", client, text=SENTENCE)
        if status != 200:
            raise ValueError(f"an honest client was answered with status {status}")
        return seconds

    def parse_meanwhile(num_requests: int, request: Callable[[], object]) -> tuple[list[float], list]:
        """Seconds of parses by one client while another one has many requests, and the answers to these."""
        with ThreadPoolExecutor(num_requests) as pool:
            others = [pool.submit(request) for _ in range(num_requests)]
            times = []
            while not all(other.done() for other in others):
                times.append(parse(2))
            return times, [other.result() for other in others]

    page = [ask(path, 1)[2] for path in ("/", "/static/page.css", "/static/page.js", "/static/icon.svg")]
    print(f"bytes of the page and its assets: {sum(page):,}")
    alone = [parse(2) for _ in range(200)]
    show("20 words, alone", alone)
    times, pictures = parse_meanwhile(NUM_PICTURES, lambda: ask("/download/figure.png", 1, text=WIDEST))
    show(f"20 words, while {NUM_PICTURES} of the widest pictures are drawn", times)
    show(
        f"those pictures, {[status for status, _, _ in pictures].count(200)} of them drawn",
        [seconds for _, seconds, _ in pictures],
    )
    with ThreadPoolExecutor(NUM_GREEDY + NUM_HONEST) as pool:
        greedy = [pool.submit(ask, "/", 1, text=LONGEST) for _ in range(NUM_GREEDY)]
        while len(server.server_state.tasks) < 50 and not all(answer.done() for answer in greedy):
            time.sleep(0.01)
        honest = list(pool.map(parse, range(2, 2 + NUM_HONEST)))
        still_waiting = sum(not answer.done() for answer in greedy)
        statuses = [answer.result()[0] for answer in greedy]
    show(f"20 words, {NUM_HONEST} clients at once beside one with {NUM_GREEDY} requests of {MAX_TOKENS} words", honest)
    counts = ", ".join(f"{statuses.count(status)} of {status or 'no answer'}" for status in sorted(set(statuses)))
    print(f"  the greedy one: {counts}; {still_waiting} of its requests waited when all others were answered")
    server.should_exit = True
    thread.join()


def show(what: str, seconds: Sequence[float]) -> None:
    *_, high = statistics.quantiles(seconds, n=20)
    print(
        f"{what}: median {statistics.median(seconds):.2f}, 95 % below {high:.2f}, largest {max(seconds):.2f} "
        f"({len(seconds)} answers)",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
