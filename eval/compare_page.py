"""Compares the trees of the web page with those of PyTorch in float32 on the sentences of a treebank.

    python eval/compare_page.py wsj_sample.mrg
    python eval/compare_page.py wsj_sample.mrg --precision float32 --model model_cards/prpn-ptb-small

It writes the page into a temporary folder and runs its script on every sentence in Node. It prints the share of equal
trees for both rules, the size of the model, and the time for some sentences.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.task import run_task, task_parser
from onlstm_hf.page.site import write_page
from onlstm_hf.text.word_alignment import encode_words
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.trees.treebank import read_treebank
from onlstm_hf.utils.checkpoints import default_model, load_checkpoint
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import positive_integer

SCRIPT = Path(__file__).with_suffix(".mjs")
TIMED_LENGTH, NUM_TIMED = 20, 20


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__, has_results=False)
    parser.add_argument("treebank", help="file or folder of trees")
    parser.add_argument("--model", metavar="PATH_OR_NAME", help="checkpoint (default: see `onlstm-hf --help`)")
    parser.add_argument(
        "--precision", choices=("int8", "float32"), default="int8", help="precision of the page's weights"
    )
    parser.add_argument(
        "--every", type=positive_integer, default=1, metavar="N", help="compare every Nth sentence (default: all)"
    )
    return parser


def compare_page(options: argparse.Namespace) -> None:
    """Prints the comparison."""
    name, precision = options.model or default_model(), options.precision
    model, tokenizer = load_checkpoint(name)
    sentences = [list(tree.words) for tree in read_treebank(options.treebank) if tree.words][:: options.every]
    expected = [distances for _, (distances,) in model.sentence_distances(sentences, tokenizer)]
    encoded = [encode_words(tokenizer, words) for words in sentences]
    with tempfile.TemporaryDirectory() as temporary:
        site = Path(temporary, "page")
        write_page(site, [name], precision=precision)
        (folder,) = (site / "models").iterdir()
        size = sum(path.stat().st_size for path in folder.iterdir())
        readings = read_in_node(folder, [ids for ids, _ in encoded], "--only-distances")
        timed = read_in_node(folder, [ids for ids, _ in encoded if len(ids) == TIMED_LENGTH][:NUM_TIMED])
    layer = model.config.parse_layer or 0
    print(f"{folder.name}, {precision}: {size:,} bytes, {len(sentences):,} sentences")
    for rule in ("right", "none"):
        equal = 0
        for words, (_, word_of_token), distances, reading in zip(sentences, encoded, expected, readings, strict=True):
            starts = [word_of_token.index(word) for word in range(len(words))]
            of_page = [reading["distances"][layer][start] for start in starts]
            equal += tree_from_distances(of_page, words, rule) == tree_from_distances(distances, words, rule)
        share = 100 * equal / len(sentences)
        print(f"rule {rule}: {equal:,} trees equal those of PyTorch in float32 ({share:.2f} %)")
    if timed:
        times = [reading["milliseconds"] for reading in timed]
        print(f"milliseconds for {TIMED_LENGTH} words: first {times[0]:.0f}, median {statistics.median(times):.0f}")


def read_in_node(folder: Path, sentences: Sequence[Sequence[int]], *options: str) -> list[dict]:
    """Runs the page's script with `options` on sentences of token ids, and returns its results."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps(list(ids))}\n" for ids in sentences)
        lines.seek(0)
        command = ["node", str(SCRIPT), str(folder), *options]
        with subprocess.Popen(command, stdin=lines, stdout=subprocess.PIPE, encoding="utf-8") as script:
            answers = progress_bar(script.stdout, total=len(sentences), unit="sentence")
            readings = [json.loads(line) for line in answers]
    if script.returncode:
        raise ValueError("the page's script failed in Node, see its error above")
    return readings


main = partial(run_task, "eval/compare_page.py", build_parser, compare_page)

if __name__ == "__main__":
    sys.exit(main())
