"""Records how the trees of a few sentences develop during training, for "Growing up" on the web page.

    python training/record_growth.py onlstm_hf/page/static/growing/toy-english.json
    python training/record_growth.py onlstm_hf/page/static/growing/penn-treebank.json --every 200 \\
        --title "Penn Treebank" --about "A small ON-LSTM learns to predict the next word of newspaper English." \\
        --train_files ptb/train.txt --validation_files ptb/valid.txt --gold_trees training/growing_sentences.mrg \\
        --model.num_hidden_layers 3 --num_epochs 2

Trains with `recipes/quickstart.yaml`, by default on generated toy English, which takes a few minutes on one core. At
each validation it stores the model's distances for held-out sentences, and the F1 over all of them. Other arguments
override fields of the recipe.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.utils.files import write_json
from onlstm_hf.utils.programs import positive_integer, run_program
from training.language_models.recipe import parse_recipe
from training.loop.recipe import read_recipe
from training.loop.run import TrainingRun
from training.loop.task import BatchSource, ProcessShard
from training.toy_english import write_toy_corpus
from training.train_lm import LanguageModeling

RECIPE = Path(__file__).parent / "recipes" / "quickstart.yaml"
LENGTHS = range(5, 13)
TOY_ENGLISH = "A small ON-LSTM learns to predict the next word of 150-word toy English. Nobody shows it a tree."


class RecordedLanguageModeling(LanguageModeling):
    """Language modelling that records distances at each validation.

    Recorded are one held-out gold tree for each of `LENGTHS`, or all trees if there are at most that many. A snapshot
    has the `validation_perplexity`, the `parsing_f1` of all sentences, and the `distances` of the recorded ones.
    """

    def load_data(self, model: PreTrainedModel, shard: ProcessShard) -> BatchSource:
        batches = super().load_data(model, shard)
        if not self.treebank:
            raise ValueError("trees of held-out sentences are recorded: with --train_files, also give --gold_trees")
        self.recorded, self.snapshots = self.treebank, []
        if len(self.treebank) > len(LENGTHS):
            by_length = {len(tree.words): tree for tree in reversed(self.treebank)}
            self.recorded = [by_length[length] for length in LENGTHS if length in by_length]
        self.validate(model)  # before the first update
        return batches

    @torch.no_grad()
    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        scores = super().validate(model)
        sentences = [list(tree.words) for tree in self.recorded]
        trees = model.parse(sentences, self.tokenizer, progress=False)
        snapshot = {name: round(scores[name], 2) for name in ("validation_perplexity", "parsing_f1")}
        snapshot["distances"] = [[float(f"{value:.3g}") for value in tree.distances] for tree in trees]
        self.snapshots.append(snapshot)
        return scores


def main(arguments: list[str] | None = None) -> int:
    options, overrides = build_parser().parse_known_args(arguments)
    return run_program("record_growth.py", lambda: record(options, overrides))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("output", type=Path, help="JSON file to write")
    every = "updates between two snapshots (%(default)s)"
    parser.add_argument("--every", type=positive_integer, default=40, metavar="N", help=every)
    parser.add_argument("--train_files", nargs="+", metavar="FILE", help="text to use instead of toy English")
    parser.add_argument("--title", default="Toy English", help="name of the text on the page (%(default)s)")
    parser.add_argument("--about", default=TOY_ENGLISH, help="description of the run on the page (%(default)s)")
    return parser


def record(options: argparse.Namespace, overrides: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = read_recipe(RECIPE)
        if options.train_files:
            arguments.remove("--gold_tree_column=tree")  # only the toy corpus has this column
            arguments += ["--train_files", *options.train_files]
        else:
            arguments += ["--dataset", str(write_toy_corpus(Path(folder, "corpus")))]
        arguments += ["--output_dir", str(Path(folder, "model")), "--eval_every_steps", str(options.every)]
        task = RecordedLanguageModeling(parse_recipe([*arguments, *overrides]))
        run = TrainingRun(task)
        run.train()
    sentences = [{"words": tree.words, "gold": tree.constituents} for tree in task.recorded]
    for number, snapshot in enumerate(task.snapshots):
        snapshot["update"] = min(options.every * number, run.progress.step)
    content = {"title": options.title, "about": options.about, "sentences": sentences, "snapshots": task.snapshots}
    write_json(options.output, content)


if __name__ == "__main__":
    sys.exit(main())
