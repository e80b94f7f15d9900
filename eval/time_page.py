"""Times the web page in Chromium: the first tree after a cold load, then sentences of twenty words.

    python eval/time_page.py                                    # the default model in 8 bits
    python eval/time_page.py model_cards/prpn-ptb-small --loads 10

Each load uses a new browser with an empty cache and a server on this machine.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.task import run_task, task_parser
from onlstm_hf.page.serving import build_server
from onlstm_hf.page.site import write_page
from onlstm_hf.utils.checkpoints import default_model
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import positive_integer

SENTENCES = [
    f"he said that the president of the bank will sell his shares of the stock in the market next {time}"
    for time in ("year", "month", "week", "day", "quarter")
]
# Milliseconds from the start of the load to the first tree.
FIRST_TREE = """
    const done = arguments[0];
    const look = () => document.querySelector(".result svg.figure") ? done(performance.now()) : setTimeout(look, 2);
    look();
"""
# Milliseconds from the Enter key to the tree of the sentence.
NEXT_TREE = """
    const [text, done] = arguments, field = document.querySelector("#text"), began = performance.now();
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
    const look = () =>
        document.querySelector(".result h2")?.textContent.includes(text) && !document.querySelector("[aria-busy=true]")
            ? done(performance.now() - began)
            : setTimeout(look, 2);
    look();
"""


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__, has_results=False)
    parser.add_argument(
        "model", nargs="?", metavar="PATH_OR_NAME", help="checkpoint (default: see `onlstm-hf --help`)"
    )
    parser.add_argument("--loads", type=positive_integer, default=5, metavar="N", help="cold loads (%(default)s)")
    return parser


def time_page(options: argparse.Namespace) -> None:
    """Prints the medians of the milliseconds of first trees and of sentences."""
    driver_path = shutil.which("chromedriver")
    if driver_path is None:
        raise FileNotFoundError("chromedriver is not installed (Debian: apt-get install chromium chromium-driver)")
    first_trees, sentences = [], []
    with tempfile.TemporaryDirectory() as temporary:
        site = Path(temporary, "page")
        write_page(site, [options.model or default_model()])
        with build_server(site, port=0) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for _ in progress_bar(range(options.loads), unit="load"):
                first_tree, next_trees = time_load(driver_path, f"http://127.0.0.1:{server.server_port}/")
                first_trees.append(first_tree)
                sentences += next_trees
            server.shutdown()
    print(f"first tree after a cold load: median {statistics.median(first_trees):.0f} ms of {options.loads} loads")
    print(f"20 words: median {statistics.median(sentences):.0f} ms of {len(sentences)} sentences")


def time_load(driver_path: str, address: str) -> tuple[float, list[float]]:
    """Returns the milliseconds of the first tree and of each sentence in a new browser."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "no-first-run"):
        options.add_argument(f"--{flag}")
    browser = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        browser.set_script_timeout(60)
        browser.get(address)
        return browser.execute_async_script(FIRST_TREE), [
            browser.execute_async_script(NEXT_TREE, text) for text in SENTENCES
        ]
    finally:
        browser.quit()


main = partial(run_task, "eval/time_page.py", build_parser, time_page)

if __name__ == "__main__":
    sys.exit(main())
