"""Trains a parser from text alone: several models, the average of their trees, and a model distilled from it.

    python training/train_parser.py --output_dir runs/parser --train_files train.txt --validation_files valid.txt \\
        --voters training/recipes/onlstm_ptb_small.yaml training/recipes/prpn_ptb_small.yaml \\
        --grammar training/recipes/grammar_ptb_focused.yaml \\
        --student training/recipes/onlstm_ptb_small_distilled.yaml --seeds 1111 2222 3333

The stages are scripts of this folder. They write to the output folder:
    onlstm_ptb_small/seed_1111, ...   train_seeds.py: the voters, each recipe with each seed
    voters/                           the trees of voters and grammars for the training text
    grammar/seed_1111, ...            train_grammar.py: grammars that use the voters' trees as votes
    averaged/                         average_trees.py: the average of all trees. All voter recipes have the same
                                      weight, and the grammars have that of all voter recipes together.
    trials/, choice.json              train_lm.py: short runs with each weight and temperature of the splitting loss
    parser/seed_1111, ...             train_lm.py: the students, which start from the voters of the first recipe

Punctuation marks raise the voters' and grammars' distances in the training text, unless `--punctuation drop` is given.
The student reads only words. Gold trees are only scored, and choose nothing. The chosen weight and temperature have
the best agreement with held-out averaged trees among those whose validation perplexity is at most
`--max_perplexity_loss` above that of the start. The same command continues after any interruption. Other options are
passed on to train_lm.py.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.trees.tree_files import read_tree_file
from onlstm_hf.utils.files import write_json
from onlstm_hf.utils.programs import positive_integer, run_program
from onlstm_hf.utils.results_file import portable
from training import average_trees
from training.grammar.model import NeuralGrammarConfig
from training.language_models.model_setup import check_recipe
from training.language_models.recipe import DataArguments, LanguageModelRecipe, parse_recipe
from training.loop.model_setup import changed_config
from training.train_grammar import parse_grammar_recipe
from training.train_seeds import figures_table, finished_results, read_results, seeds_table

FOLDER = Path(__file__).resolve().parent
GRAMMAR = "grammar"
# Recipe fields of the student's splitting loss that are chosen.
LOSS_FIELDS = ("tree_loss_weight", "tree_temperature")
# Recipe fields of the preprocessing of gold trees, which the grammar takes from the voters.
TREEBANK_FIELDS = (
    *("treebank_preset", "dropped_tags", "treebank_lowercase", "treebank_digits", "function_tag_separators"),
)


def train_parser(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Runs all stages, and prints the tables of voters, students and grammars."""
    recipes = {Path(name).stem: name for name in options.voters}
    if len(recipes) < len(options.voters):
        raise ValueError("two of the voters' recipes have the same name")
    *voter_recipes, student_recipe = (
        parse_recipe([name, *text_options(options), *arguments]) for name in (*options.voters, options.student)
    )
    config, *_ = [check_recipe(recipe) for recipe in voter_recipes]
    changed_config(config, config.to_dict(), student_recipe.model.model)  # the student starts from the first recipe
    if options.grammar is not None:
        grammar = parse_grammar_recipe([options.grammar, "--train_files", *options.train_files])
        changed_config(NeuralGrammarConfig(), {}, grammar.model.model)
    voters = {name: train_voters(name, recipe, options, arguments) for name, recipe in recipes.items()}
    files = {name: trees_of_text(folders, options) for name, folders in voters.items()}
    starts = next(iter(voters.values()))
    if options.grammar is not None:
        files[GRAMMAR] = train_grammars(files, starts[0], voter_recipes[0].data, options)
    averaged = average(files, starts[0], options)
    student = [options.student, "--target_trees", averaged, *text_options(options), *arguments]
    chosen = choose(student, starts[0], options)
    epochs = student_epochs(student_recipe, read_results(starts[0].parent), options.student_updates)
    student += [*chosen, "--num_epochs", epochs]
    for seed, start in zip(options.seeds, starts, strict=True):
        train_student(options.output_dir / "parser" / f"seed_{seed}", start, [*student, "--seed", seed])

    def results_of(name: str) -> dict[int, dict]:
        return {seed: read_results(options.output_dir / name / f"seed_{seed}") for seed in options.seeds}

    for name in (*recipes, "parser"):
        print(f"\n{name}\n{seeds_table(results_of(name))}")
    if options.grammar is not None and options.gold_trees:
        f1 = {seed: {"F1": 100 * run["parsing"]["sentence_f1"]} for seed, run in results_of(GRAMMAR).items()}
        print(f"\n{GRAMMAR}\n{figures_table(f1)}")


def text_options(options: argparse.Namespace) -> list[str]:
    """Returns the files of text and gold trees as options of train_lm.py."""
    files = {"train_files": options.train_files, "validation_files": options.validation_files}
    files |= {"test_files": options.test_files, "gold_trees": options.gold_trees and [options.gold_trees]}
    return [part for name, paths in files.items() if paths for part in (f"--{name}", *paths)]


def run_stage(name: str, *arguments: Any) -> None:
    """Runs a script of this folder in a new process."""
    arguments = [str(argument) for argument in arguments]
    print(f"\npython training/{name} {' '.join(arguments)}", flush=True)
    if code := subprocess.run([sys.executable, str(FOLDER / name), *arguments]).returncode:
        raise ChildProcessError(f"{name} ended with exit code {code}; the same command continues")


def train_voters(name: str, recipe: str, options: argparse.Namespace, arguments: Sequence[str]) -> list[Path]:
    """Trains one recipe with all seeds, and returns the checkpoints."""
    folder = options.output_dir / name
    seeds = ["--seeds", *options.seeds, "--at-once", options.at_once, "--output_dir", folder]
    run_stage("train_seeds.py", recipe, *seeds, *text_options(options), *arguments)
    return [folder / f"seed_{seed}" / "best" for seed in options.seeds]


def trees_of_text(checkpoints: Sequence[Path], options: argparse.Namespace) -> list[Path]:
    """Parses the training text with the checkpoints, and returns the files of their trees."""
    folder = options.output_dir / "voters"
    folder.mkdir(parents=True, exist_ok=True)
    names = [str(path) for path in checkpoints]
    text = ["--files", *options.train_files, "--punctuation", options.punctuation, "--output-dir", str(folder)]
    parsed = average_trees.build_parser().parse_args([*names, *text])
    return [average_trees.parsed_text(name, parsed)[1] for name in names]


def train_grammars(
    files: dict[str, list[Path]], tokenizer: Path, data: DataArguments, options: argparse.Namespace
) -> list[Path]:
    """Trains grammars with the trees of other models as votes, and returns the files of their trees."""
    number = sum(map(len, files.values()))
    votes = [f"{path}={number / len(files) / len(paths):g}" for paths in files.values() for path in paths]
    text = ["--train_files", *options.train_files, "--tokenizer", tokenizer]
    if options.gold_trees:
        text += ["--gold_trees", options.gold_trees]
        for name in TREEBANK_FIELDS:
            if (value := getattr(data, name)) is not None:
                text += [f"--{name}", *value] if isinstance(value, list) else [f"--{name}={value}"]
    folders = [options.output_dir / "grammar" / f"seed_{seed}" for seed in options.seeds]
    for seed, folder in zip(options.seeds, folders, strict=True):
        run = ["--seed", seed, "--output_dir", folder, "--parse_text", "false", "--resume"]
        run_stage("train_grammar.py", options.grammar, *text, "--votes", *votes, *run)
    return trees_of_text([folder / "best" for folder in folders], options)


def average(files: dict[str, list[Path]], tokenizer: Path, options: argparse.Namespace) -> Path:
    """Averages the trees, and returns their file; `tokenizer` is the checkpoint that splits the text into words."""
    folder = options.output_dir / "averaged"
    path = folder / average_trees.AVERAGED
    weights = dict.fromkeys(files, 1) | ({GRAMMAR: len(files) - 1} if GRAMMAR in files else {})
    weighted = [f"{path}={weights[name] / len(paths):g}" for name, paths in files.items() for path in paths]
    if path.exists():
        members = read_tree_file(path).model.get("averaged", [])
        if {f"{member['model']}={member['weight']:g}" for member in members} == set(map(portable, weighted)):
            return path
    text = ["--files", *options.train_files, "--tokenizer", tokenizer]
    run_stage("average_trees.py", *weighted, *text, "--output-dir", folder)
    return path


def choose(student: Sequence[Any], start: Path, options: argparse.Namespace) -> list[str]:
    """Tries each weight and temperature, and returns the options with the best agreement within the perplexity limit.

    If all exceed the limit, those with the lowest perplexity are chosen.
    """
    trials = []
    for weight, temperature in product(options.weights, options.temperatures):
        folder = options.output_dir / "trials" / f"weight_{weight:g}_temperature_{temperature:g}"
        trial = dict(zip(LOSS_FIELDS, (weight, temperature), strict=True))
        trial_options = ["--seed", options.seeds[0], "--max_steps", options.trial_steps]
        results = train_student(folder, start, [*student, *loss_options(trial), *trial_options])
        trial["perplexity"] = results["validation_perplexity"]
        trial["agreement"] = results["target_trees"]["held_out_tree_f1"]
        trials.append(trial)
    limit = (1 + options.max_perplexity_loss) * read_results(start.parent)["validation_perplexity"]
    if fitting := [trial for trial in trials if trial["perplexity"] <= limit]:
        best = max(fitting, key=itemgetter("agreement"))
    else:
        best = min(trials, key=itemgetter("perplexity"))
    for trial in trials:
        perplexity = f"validation perplexity {trial['perplexity']:.2f} (at most {limit:.2f})"
        choice = ", chosen" if trial is best else ""
        print(f"{' '.join(loss_options(trial))}: {perplexity}, agreement {trial['agreement']:.1f}{choice}")
    chosen = {name: best[name] for name in LOSS_FIELDS}
    write_json(options.output_dir / "choice.json", {"chosen": chosen, "largest_perplexity": limit, "trials": trials})
    return loss_options(chosen)


def loss_options(trial: Mapping[str, float]) -> list[str]:
    return [f"--{name}={trial[name]:g}" for name in LOSS_FIELDS]


def student_epochs(student: LanguageModelRecipe, voter: Mapping[str, Any], updates: int) -> int:
    """Returns the epochs of the student's recipe, or more if needed for this number of updates.

    `voter` has the results of a run on the same text.
    """
    factors = ("batch_size", "bptt_length", "gradient_accumulation_steps")  # of the tokens per update
    voter_tokens, student_tokens = (
        math.prod(recipe[name] for name in factors) for recipe in (voter["recipe"], student.fields())
    )
    updates_per_epoch = voter["updates"] / max(1, voter["epochs"]) * voter_tokens / student_tokens
    return max(student.optimization.num_epochs, math.ceil(updates / updates_per_epoch))


def train_student(folder: Path, start: Path, student: Sequence[Any]) -> dict:
    """Trains a checkpoint further with the recipe and options `student`, and returns the results."""
    options = [str(option) for option in (*student, "--init_from", start, "--output_dir", folder, "--resume")]
    finished_results(folder, parse_recipe(options))  # raises for another recipe, which train_lm.py would accept
    run_stage("train_lm.py", *options)
    return read_results(folder)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output_dir", type=Path, required=True, metavar="FOLDER")
    voters = "recipes of train_lm.py; students start from models of the first"
    parser.add_argument("--voters", nargs="+", required=True, metavar="RECIPE", help=voters)
    parser.add_argument("--grammar", metavar="RECIPE", help="recipe of train_grammar.py (default: no grammar)")
    parser.add_argument("--student", required=True, metavar="RECIPE", help="recipe of train_lm.py for the last stage")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1111, 2222, 3333], metavar="SEED")
    parser.add_argument("--at-once", type=positive_integer, default=1, metavar="N", help="voters trained in parallel")
    parser.add_argument("--train_files", nargs="+", required=True, metavar="FILE", help="text, one sentence per line")
    parser.add_argument("--validation_files", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--test_files", nargs="+", metavar="FILE")
    parser.add_argument("--gold_trees", metavar="FILE", help="trees to report F1 on")
    punctuation = "see average_trees.py (%(default)s)"
    parser.add_argument("--punctuation", choices=["cue", "drop"], default="cue", help=punctuation)
    parser.add_argument("--weights", type=float, nargs="+", default=[1.0, 3.0, 10.0], metavar="X", help="%(default)s")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.02, 0.05], metavar="X", help="%(default)s")
    parser.add_argument("--trial_steps", type=positive_integer, default=40, metavar="N", help="updates (%(default)s)")
    updates = "minimum updates of the student, which raises its epochs on a small text (%(default)s)"
    parser.add_argument("--student_updates", type=positive_integer, default=500, metavar="N", help=updates)
    parser.add_argument("--max_perplexity_loss", type=float, default=0.03, metavar="SHARE", help="%(default)s")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options, remaining = build_parser().parse_known_args(arguments)
    options.seeds = list(dict.fromkeys(options.seeds))
    return run_program("train_parser.py", lambda: train_parser(options, remaining))


if __name__ == "__main__":
    sys.exit(main())
