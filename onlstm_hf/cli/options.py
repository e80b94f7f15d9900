"""Options that several subcommands have, and kinds of options."""

import argparse
from collections.abc import Sequence

from ..utils.programs import add_code_option, positive_integer


def add_choice(parser: argparse._ActionsContainer, name: str, choices: Sequence[str], help: str) -> None:
    """Adds an option with a few values, of which the first is the default."""
    parser.add_argument(name, choices=choices, default=choices[0], help=f"{help} (default: %(default)s)")


def add_number(
    parser: argparse._ActionsContainer, name: str, help: str, default: int | None = None, metavar: str = "N"
) -> None:
    """Adds an option with a whole number of at least 1; `help` says the default where this is `None`."""
    shown = "" if default is None else " (default: %(default)s)"
    parser.add_argument(name, type=positive_integer, default=default, metavar=metavar, help=help + shown)


def add_model_options(parser: argparse._ActionsContainer, batch_size: int) -> None:
    """Adds the model, and how many sentences it reads at a time by default."""
    parser.add_argument(
        "--model",
        metavar="PATH_OR_NAME",
        help="checkpoint folder, or name on the Hub (default: see `onlstm-hf --help`)",
    )
    add_code_option(parser)
    add_number(parser, "--batch-size", "sentences in one pass through the model", batch_size)


def add_splitting_options(parser: argparse._ActionsContainer, texts: str, text: str) -> None:
    """Adds the splitting of texts into sentences; `texts` and `text` are what the input consists of, for the help."""
    parser.add_argument(
        "--split-sentences",
        action="store_true",
        help=f"{texts} have any number of sentences, and are split into them (default: each {text} is one)",
    )
    parser.add_argument(
        "--language", metavar="CODE", help="language whose rules --split-sentences follows (default: en)"
    )


def splitting_language(options: argparse.Namespace) -> str | None:
    """The language by whose rules texts are split into sentences; `None` where they are not.

    Raises:
        ValueError: if a language is given, and no splitting.
    """
    if options.split_sentences:
        return options.language or "en"
    if options.language is not None:
        raise ValueError(f"--language {options.language} needs --split-sentences")
    return None


def add_tree_options(parser: argparse._ActionsContainer) -> None:
    """Adds what trees depend on."""
    parser.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="layer whose distances make the trees, counted from 0 (default: parse_layer in the model's config.json)",
    )
    add_choice(parser, "--branching-bias", ["right", "none", "ranges"], "rule, see `onlstm-hf parse --help`")
    add_choice(
        parser,
        "--punctuation",
        ["drop", "attach", "cue"],
        "marks between words: leave them out (the papers' protocol), hang them on the tree as treebanks do, or leave "
        "them out but take them as cues to where constituents end",
    )
    add_choice(parser, "--dtype", ["float32", "bfloat16"], "precision of the weights; bfloat16 is faster on some CPUs")
