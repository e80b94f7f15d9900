"""Trains a parser in a few minutes: `python training/quickstart.py [--output_dir FOLDER] [--name value ...]`.

Generates a toy English corpus, trains a small ON-LSTM on its raw text (recipes/quickstart.yaml), evaluates it on
held-out sentences, and prints induced trees next to gold trees. Other arguments override fields of the recipe,
including the model type.
"""

import argparse
import contextlib
import sys
import time
from pathlib import Path

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.hub.cards.language_model import layer_row, main_row
from onlstm_hf.scoring.parsing_scores import score_baselines, score_parses
from onlstm_hf.trees.baselines import right_branching_tree
from onlstm_hf.trees.drawing import save_figure, tree_to_text
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.treebank import GoldTree, gold_trees_from_brackets
from onlstm_hf.utils.programs import run_program
from onlstm_hf.utils.results_file import write_results
from training import train_lm
from training.toy_english import write_toy_corpus

RECIPE = Path(__file__).parent / "recipes" / "quickstart.yaml"
NUM_SHOWN = 3
SHOWN_LENGTHS = range(7, 11)


def main(arguments: list[str] | None = None) -> dict:
    """Runs the script and returns the content of `results.json`."""
    started = time.monotonic()
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--output_dir",
        "--output-dir",  # options of train_lm.py also have both spellings
        type=Path,
        default=Path("runs/quickstart"),
        help="output folder (%(default)s)",
    )
    options, overrides = parser.parse_known_args(arguments)

    corpus = write_toy_corpus(options.output_dir / "corpus")
    run = options.output_dir / "model"
    data = ["--dataset", str(corpus), "--test_split", "test", "--output_dir", str(run)]
    training = train_lm.main([str(RECIPE), *data, *overrides])

    model = AutoModelForCausalLM.from_pretrained(run / "best")
    model.set_implementation(training["recipe"]["implementation"])
    tokenizer = AutoTokenizer.from_pretrained(run / "best")
    gold = gold_trees_from_brackets(load_dataset(str(corpus), split="test")["tree"])
    sentences = [list(tree.words) for tree in gold]
    induced, by_layer = model.parse_by_layer(sentences, tokenizer)
    rows = {main_row(model.config): score_parses(induced, gold)}
    if model.parse_layer is not None:
        rows = {layer_row(layer): score_parses(trees, gold) for layer, trees in enumerate(by_layer.values())}
    rows |= score_baselines(gold)

    print(f"\nheld-out test sentences: {len(gold)}, perplexity {training['test_perplexity']:.2f}")
    print("\nsentence F1 on these held-out test sentences")
    for name, row in rows.items():
        print(f"  {name:32}{100 * row.sentence_f1:6.1f}")
    shown = [index for index, tree in enumerate(gold) if len(tree.words) in SHOWN_LENGTHS][:NUM_SHOWN]
    drawings = [_drawings(gold[index], induced[index]) for index in shown]
    print("".join(f"\n{title}\n{text}\n" for drawing in drawings for title, text in drawing.items()))

    figures = [
        _draw(model, tokenizer, induced[index], options.output_dir / f"tree-{number}.svg")
        for number, index in enumerate(shown, start=1)
    ]
    print(f"checkpoint  {run / 'best'}")
    for figure in figures:
        print(f"figure      {figure}")
    results = {
        "task": "toy English",
        "model_type": model.config.model_type,
        "num_parameters": model.num_parameters(),
        "seed": training["recipe"]["seed"],
        "num_sentences": len(gold),
        "test_perplexity": training["test_perplexity"],
        "sentence_f1": {name: row.sentence_f1 for name, row in rows.items()},
        "trees": drawings,
        "seconds": time.monotonic() - started,
        "cpu_seconds": time.process_time(),
    }
    return write_results(options.output_dir / "results.json", results, "training/quickstart.py", arguments)


def _drawings(gold: GoldTree, induced: InducedTree) -> dict[str, str]:
    """Returns the gold tree, the induced one and the right-branching baseline as text."""
    trees = {
        "gold": InducedTree.from_nested(gold.to_nested()),
        "induced": induced,
        "right branching": right_branching_tree(gold.words),
    }
    return {title: tree_to_text(tree) for title, tree in trees.items()}


def _draw(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tree: InducedTree, path: Path) -> Path:
    """Draws the tree and the distances of every layer as SVG and, if the extra is installed, PNG."""
    svg = model.draw_distances(list(tree.words), tokenizer)
    save_figure(svg, path)
    with contextlib.suppress(ImportError):
        save_figure(svg, path.with_suffix(".png"))
    return path


if __name__ == "__main__":
    sys.exit(run_program("quickstart.py", main))
