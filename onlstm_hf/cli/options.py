"""Options that several subcommands share."""

import argparse
from collections.abc import Sequence

from ..utils.programs import add_code_option, positive_integer


def add_choice(parser: argparse._ActionsContainer, name: str, choices: Sequence[str], help: str) -> None:
    """Adds an option with fixed choices; the first one is the default."""
    parser.add_argument(name, choices=choices, default=choices[0], help=f"{help} (default: %(default)s)")


def add_number(parser: argparse._ActionsContainer, name: str, help: str, default: int | None = None) -> None:
    """Adds an option for a positive integer; if `default` is `None`, `help` must state the default."""
    shown = "" if default is None else " (default: %(default)s)"
    parser.add_argument(name, type=positive_integer, default=default, metavar="N", help=help + shown)


def add_model_options(parser: argparse._ActionsContainer, batch_size: int) -> None:
    """Adds `--model`, `--trust-remote-code`, and `--batch-size` with this default."""
    model = "checkpoint folder, or name on the Hub (default: see `onlstm-hf --help`)"
    parser.add_argument("--model", metavar="PATH_OR_NAME", help=model)
    add_code_option(parser)
    add_number(parser, "--batch-size", "sentences per forward pass", batch_size)


def add_splitting_options(parser: argparse._ActionsContainer) -> None:
    """Adds the options for splitting texts into sentences."""
    parser.add_argument("--split-sentences", action="store_true", help="split lines or documents into sentences")
    parser.add_argument("--language", metavar="CODE", help="language for --split-sentences (default: en)")


def splitting_language(options: argparse.Namespace) -> str | None:
    """Returns the language for splitting into sentences; `None` without --split-sentences."""
    if options.split_sentences:
        return options.language or "en"
    if options.language is not None:
        raise ValueError(f"--language {options.language} needs --split-sentences")
    return None


def add_tree_options(parser: argparse._ActionsContainer) -> None:
    """Adds the options that determine the trees."""
    layer = "layer whose distances give the trees, counted from 0 (default: parse_layer in the model's config.json)"
    parser.add_argument("--layer", type=int, metavar="N", help=layer)
    bias = "rule that turns distances into trees, explained at the end of `onlstm-hf parse --help`"
    add_choice(parser, "--branching-bias", ["right", "none", "ranges"], bias)
    punctuation = "drop it as the papers do, attach it as treebanks do, or use it as a cue to the ends of constituents"
    add_choice(parser, "--punctuation", ["drop", "attach", "cue"], punctuation)
    add_choice(parser, "--dtype", ["float32", "bfloat16"], "precision of the weights; bfloat16 is faster on some CPUs")
