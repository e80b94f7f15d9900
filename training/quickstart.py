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
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.scoring.parsing_scores import score_baselines
from onlstm_hf.trees.baselines import right_branching_tree
from onlstm_hf.trees.drawing import save_figure, tree_to_text
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.treebank import gold_trees_from_brackets
from onlstm_hf.utils.programs import run_program
from onlstm_hf.utils.results_file import write_results
from training import train_lm
from training.release import scores_by_layer
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
    spellings = ("--output_dir", "--output-dir")  # as the options of train_lm.py have
    parser.add_argument(*spellings, type=Path, default=Path("runs/quickstart"), help="output folder (%(default)s)")
    options, overrides = parser.parse_known_args(arguments)

    corpus = write_toy_corpus(options.output_dir / "corpus")
    run = options.output_dir / "model"
    data = ["--dataset", str(corpus), "--test_split", "test", "--output_dir", str(run)]
    training = train_lm.main([str(RECIPE), *data, *overrides])

    model = AutoModelForCausalLM.from_pretrained(run / "best")
    model.set_implementation(training["recipe"]["implementation"])
    tokenizer = AutoTokenizer.from_pretrained(run / "best")
    gold = gold_trees_from_brackets(load_dataset(str(corpus), split="test")["tree"])
    rows = scores_by_layer(model, tokenizer, gold) | score_baselines(gold)
    print(f"\nheld-out test sentences: {len(gold)}, perplexity {training['test_perplexity']:.2f}")
    print("\nsentence F1 on these held-out test sentences")
    for name, row in rows.items():
        print(f"  {name:32}{100 * row.sentence_f1:6.1f}")

    shown = [tree for tree in gold if len(tree.words) in SHOWN_LENGTHS][:NUM_SHOWN]
    drawings, figures = [], []
    for number, tree in enumerate(shown, start=1):
        induced = model.parse([list(tree.words)], tokenizer)[0]
        trees = {"gold": InducedTree.from_nested(tree.to_nested()), "induced": induced}
        trees["right branching"] = right_branching_tree(tree.words)
        drawings.append({title: tree_to_text(tree) for title, tree in trees.items()})
        print("".join(f"\n{title}\n{text}\n" for title, text in drawings[-1].items()), end="")
        # The tree and the distances of every layer as SVG and, if the extra is installed, PNG.
        svg = model.draw_distances(list(tree.words), tokenizer)
        figures.append(options.output_dir / f"tree-{number}.svg")
        save_figure(svg, figures[-1])
        with contextlib.suppress(ImportError):
            save_figure(svg, figures[-1].with_suffix(".png"))
    print(f"\ncheckpoint  {run / 'best'}")
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


if __name__ == "__main__":
    sys.exit(run_program("quickstart.py", main))
