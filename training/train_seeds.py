"""Trains one recipe with several seeds: `python training/train_seeds.py RECIPE.yaml --seeds 1111 2222 [options]`.

Each run is one of train_lm.py, in a folder of its own below the recipe's output_dir (seed_1111, ...), which also gets
what it printed (output.txt). The same command continues after any interruption: finished runs are kept,
the others are resumed. Options that are not listed here are passed on to train_lm.py.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.utils.programs import num_cores, positive_integer
from training.language_models.recipe import parse_recipe
from training.language_models.text_batches import check_files
from training.loop.processes import locked_folder
from training.seeds.reporter import Reporter, results_table
from training.seeds.seed_run import SeedRun

SECONDS_BETWEEN_LOOKS = 0.5


def train_seeds(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Runs every seed to its end, and prints the table. Returns the exit code: 1 where a run failed."""
    recipe = parse_recipe([options.recipe, *arguments])
    check_files(recipe.data)
    output_dir = Path(recipe.run.output_dir)
    runs = [SeedRun(seed, recipe) for seed in dict.fromkeys(options.seeds)]
    with locked_folder(output_dir, longest_wait=1.0):
        failed = run_all(runs, options, arguments)
    results = {run.seed: run.results() for run in runs if run not in failed}
    if results:
        print(f"\n{results_table(results)}")
    if failed:
        seeds = ", ".join(str(run.seed) for run in failed)
        print(f"\nnot finished: {seeds}; the same command resumes them", file=sys.stderr)
    return 1 if failed else 0


def run_all(runs: Sequence[SeedRun], options: argparse.Namespace, arguments: Sequence[str]) -> list[SeedRun]:
    """Starts the unfinished runs, `--at-once` at a time, and returns the ones that failed."""
    at_once = min(options.at_once, len(runs))
    num_threads = runs[0].recipe.run.num_threads or max(1, num_cores() // at_once)
    reporter, running, failed = Reporter(), [], []
    waiting = [run for run in runs if not run.results()]

    def finish(run: SeedRun, message: str) -> None:
        reporter.print_line(message)
        if options.results:
            run.copy_results(options.results)

    for run in runs:
        if run not in waiting:
            finish(run, f"seed {run.seed} is finished already")
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                running[-1].start([options.recipe, *arguments], num_threads)
            time.sleep(SECONDS_BETWEEN_LOOKS)
            for run in [run for run in running if run.process.poll() is not None]:
                running.remove(run)
                if run.results():
                    finish(run, f"{run.progress()}; finished")
                else:
                    failed.append(run)
                    reporter.print_line(run.failure())
            reporter.print_progress(running)
    finally:
        for run in running:
            run.stop()
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("recipe", metavar="RECIPE", help="recipe of train_lm.py")
    parser.add_argument("--seeds", type=int, nargs="+", required=True, metavar="SEED")
    parser.add_argument(
        "--at-once",
        type=positive_integer,
        default=1,
        metavar="N",
        help="runs at the same time, each with its share of the CPU's threads (%(default)s)",
    )
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="copy the results and trees of each finished run there"
    )
    options, others = parser.parse_known_args(arguments)
    try:
        if any(argument.partition("=")[0] == "--seed" for argument in others):
            raise ValueError("give the seeds with --seeds")
        return train_seeds(options, others)
    except (ValueError, OSError) as error:
        print(f"train_seeds.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("train_seeds.py: interrupted; the same command resumes the runs", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
