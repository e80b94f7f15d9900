"""Trains one recipe with several seeds: `python training/train_seeds.py RECIPE.yaml --seeds 1111 2222 [options]`.

Each run of train_lm.py has its own folder in the recipe's output_dir (seed_1111, ...), which also gets its output
(output.txt). The same command continues after any interruption: finished runs are kept, the others are resumed.
Finished runs with another recipe or other data are refused. Other options are passed on to train_lm.py.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from transformers import PreTrainedConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.trees.tree_files import FILE_NAME
from onlstm_hf.utils.files import write_json
from onlstm_hf.utils.programs import num_cores, positive_integer, run_program
from onlstm_hf.utils.results_file import portable
from training.language_models.model_setup import check_recipe
from training.language_models.recipe import DATA_FILES, LanguageModelRecipe, parse_recipe
from training.loop.checkpointing import locked_folder
from training.loop.model_setup import code_fingerprint
from training.loop.run import changed_values
from training.train_lm import LanguageModeling

SCRIPT = Path(__file__).resolve().with_name("train_lm.py")
SECONDS_BETWEEN_POLLS = 0.5
SECONDS_BETWEEN_LINES = 60


class SeedRun:
    """Run of train_lm.py with one seed, in its own folder in the `output_dir` of the recipe."""

    def __init__(self, seed: int, recipe: LanguageModelRecipe):
        self.seed, self.recipe = seed, recipe
        self.folder = Path(recipe.run.output_dir) / f"seed_{seed}"
        self.output = self.folder / "output.txt"
        self.process: subprocess.Popen | None = None

    def results(self) -> dict | None:
        return finished_results(self.folder, self.recipe)

    def start(self, arguments: Sequence[str], num_threads: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        options = {"--seed": self.seed, "--output_dir": self.folder, "--resume": "true", "--num_threads": num_threads}
        run_arguments = [str(part) for option in options.items() for part in option]
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, SCRIPT, *arguments, *run_arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": str(num_threads)},
            )

    def last_output_line(self) -> str:
        """Returns the last line of the run's output: the progress bar, or an error."""
        lines = self.output.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def failure(self) -> str:
        """Describes the failure of the process: signal or exit code, and last line of output."""
        code = self.process.returncode
        reason = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        return f"seed {self.seed} {reason}: {self.last_output_line()} (full output: {self.output})"


def finished_results(folder: Path, recipe: LanguageModelRecipe) -> dict | None:
    """Returns the results of a run of the recipe with any seed; `None` if it is not finished.

    A `ValueError` names the first field of a finished run with another recipe.
    """
    if not (folder / "results.json").exists():
        return None
    results = read_results(folder)
    fields = recipe.fields("fixed") | recipe.fields("recorded")
    for name, before, after in changed_values(results["recipe"], fields):
        may_have_moved = name in DATA_FILES and before and after  # `check_data` compares the contents
        if name != "seed" and not may_have_moved:
            advice = "use another --output_dir, or continue this run with train_lm.py --resume"
            raise ValueError(f"{folder} is a finished run with {name} {before}, not {after}: {advice}")
    return results


def read_results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def check_data(runs: Sequence[SeedRun], recipe: LanguageModelRecipe, config: PreTrainedConfig) -> None:
    """Raises a `ValueError` if the recipe's files changed since a finished run."""
    finished = {run.folder: results for run in runs if (results := run.results())}
    if not finished:
        return
    task = LanguageModeling(recipe)
    task.read_data(config)
    fingerprints = task.fingerprints | code_fingerprint(recipe.model.model_code)
    for folder, results in finished.items():
        for name, *_ in changed_values(results.get("fingerprints", {}), fingerprints):
            raise ValueError(f"the {name} changed since {folder} was trained: use another --output_dir")


def train_seeds(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    if any(argument.partition("=")[0] == "--seed" for argument in arguments):
        raise ValueError("give the seeds with --seeds")
    recipe = parse_recipe([options.recipe, *arguments])
    config = check_recipe(recipe)
    runs = [SeedRun(seed, recipe) for seed in dict.fromkeys(options.seeds)]
    check_data(runs, recipe, config)
    with locked_folder(Path(recipe.run.output_dir)):
        failed = run_all(runs, options, arguments)
    if results := {run.seed: run.results() for run in runs if run not in failed}:
        print(f"\n{seeds_table(results)}")
    if failed:
        seeds = ", ".join(str(run.seed) for run in runs if run in failed)
        raise ChildProcessError(f"not finished: {seeds}; the same command resumes them")


def run_all(runs: Sequence[SeedRun], options: argparse.Namespace, arguments: Sequence[str]) -> list[SeedRun]:
    """Starts the unfinished runs, `--at-once` at a time, and returns the failed ones."""
    at_once = min(options.at_once, len(runs))
    num_threads = runs[0].recipe.run.num_threads or max(1, num_cores() // at_once)
    waiting, running, failed = [run for run in runs if not run.results()], [], []
    shown_at = time.monotonic()

    def finish(run: SeedRun, message: str) -> None:
        print(f"seed {run.seed} {message}", flush=True)
        if options.results:
            copy_results(run.folder, options.results)

    for run in runs:
        if run not in waiting:
            finish(run, "is already finished")
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                running[-1].start([options.recipe, *arguments], num_threads)
            time.sleep(SECONDS_BETWEEN_POLLS)
            for run in [run for run in running if run.process.poll() is not None]:
                running.remove(run)
                if run.results():
                    finish(run, "is finished")
                else:
                    failed.append(run)
                    print(run.failure(), flush=True)
            if time.monotonic() - shown_at >= SECONDS_BETWEEN_LINES:
                shown_at = time.monotonic()
                for run in running:
                    print(f"seed {run.seed}: {run.last_output_line()}", flush=True)
    finally:
        for run in running:
            run.process.kill()  # the next command resumes it from its last checkpoint
            run.process.wait()
    return failed


def copy_results(run: Path, folder: Path) -> None:
    """Copies results and trees of a run to files whose names start with the seed."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{run.name}.json", portable(read_results(run)))
    if (run / FILE_NAME).exists():
        shutil.copyfile(run / FILE_NAME, folder / f"{run.name}.{FILE_NAME}")


def seeds_table(results: dict[int, dict]) -> str:
    """Returns the table of results by seed, followed by the F1 of baselines and recipe changes during runs."""
    lines = [figures_table({seed: figures(content) for seed, content in results.items()})]
    if baselines := next(iter(results.values())).get("baselines"):
        lines.append("F1 of " + ", ".join(f"{name} {100 * f1:.2f}" for name, f1 in baselines.items()))
    for seed, content in results.items():
        for change in content.get("changes", []):
            lines.append("seed {}: {field} was {before} until update {step}, then {after}".format(seed, **change))
    return "\n".join(lines)


def figures(results: dict) -> dict[str, float]:
    """Returns the figures of one run by column of the table: perplexities, and sentence F1 in per cent."""
    columns = {"validation": results["validation_perplexity"]}
    if "test_perplexity" in results:
        columns["test"] = results["test_perplexity"]
    for rule, heading in {"right": "F1 {}", "none": "F1 {}, no bias"}.items():
        for layer, scores in results.get("sentence_f1_by_layer", {}).items():
            columns[heading.format(layer)] = 100 * scores[rule]
    return columns


def figures_table(figures_by_seed: dict[int, dict[str, float]]) -> str:
    """Returns a table with a row for each seed, and mean, sample standard deviation, minimum and maximum."""
    seeds = pd.DataFrame.from_dict(figures_by_seed, orient="index").rename_axis(columns="seed")
    summary = seeds.agg(["mean", "std", "min", "max"]).rename({"std": "s.d."}).dropna(how="all")
    return pd.concat([seeds, summary]).to_string(float_format="{:.2f}".format)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("recipe", metavar="RECIPE", help="recipe of train_lm.py")
    parser.add_argument("--seeds", type=int, nargs="+", required=True, metavar="SEED")
    at_once = "number of parallel runs, which share the CPU threads evenly (%(default)s)"
    parser.add_argument("--at-once", type=positive_integer, default=1, metavar="N", help=at_once)
    copies = "folder for copies of the results and trees of finished runs"
    parser.add_argument("--results", type=Path, metavar="FOLDER", help=copies)
    options, remaining = parser.parse_known_args(arguments)
    return run_program("train_seeds.py", lambda: train_seeds(options, remaining))


if __name__ == "__main__":
    sys.exit(main())
