"""The console command `onlstm-hf`: parsing, scoring, a web page, and conversion and sharing of checkpoints."""

import argparse
import signal
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from ..utils.programs import run_program
from ..version import __version__
from . import compare, convert, demo, export, page, parse, parse_corpus, push, score

DESCRIPTION = "Finds constituency trees in raw text with language models such as the ON-LSTM, and scores sentences."
EXAMPLES = """\
examples:
  onlstm-hf parse "he will sell his shares"
  onlstm-hf compare trees.txt gold.mrg
  onlstm-hf score --file sentences.txt
  onlstm-hf demo
  onlstm-hf convert PTB.pt my-checkpoint --vocab-from train.txt valid.txt test.txt
  onlstm-hf push my-checkpoint user/my-checkpoint

`onlstm-hf COMMAND --help` explains a command and its options.

A model is a checkpoint folder or a name on the Hugging Face Hub. The default model is the first of these that exists:
the environment variable ONLSTM_MODEL; model_cards/onlstm-english in the current directory or in the checkout that this
package was installed from; the same model with rounded weights inside the package.
"""
# In the order of `--help`.
SUBCOMMANDS = (parse, compare, parse_corpus, score, demo, page, convert, export, push)


class VersionAction(argparse.Action):
    """The option `--version`, which imports PyTorch only when it is used."""

    def __call__(self, parser, namespace, values, option_string=None):
        from ..fast.onlstm.native import OPERATOR as ONLSTM
        from ..fast.prpn.native import OPERATOR as PRPN

        print(f"onlstm-hf {__version__}")
        for model, operator in {"ON-LSTM": ONLSTM, "PRPN": PRPN}.items():
            print(f"compiled operator of the {model}: {operator.instruction_set() or 'none'}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `onlstm-hf` with arguments, by default those of the process; returns the exit code of `run_program`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # `onlstm_hf` sets it during the import of this module
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run_program("onlstm-hf", lambda: _run_subcommand(arguments))


def build_parser() -> argparse.ArgumentParser:
    """Builds the parser of `onlstm-hf` and its subcommands; `options.run` is the function of a subcommand."""
    parser_class = partial(argparse.ArgumentParser, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser = parser_class("onlstm-hf", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--version", action=VersionAction, nargs=0, help="show the version and compiled operators")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=parser_class)
    for module in SUBCOMMANDS:
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        subparser = commands.add_parser(name, help=module.HELP, description=module.DESCRIPTION, epilog=module.EXAMPLES)
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def _run_subcommand(arguments: Sequence[str] | None) -> None:
    parser = build_parser()
    options, remaining = parser.parse_known_args(arguments)
    if remaining:  # argparse ends the list of models at the first option after it
        if not hasattr(options, "models") or any(argument.startswith("-") for argument in remaining):
            parser.error(f"unrecognized arguments: {' '.join(remaining)}")
        options.models = [*options.models, *remaining]
    # The installed command skips this in `import onlstm_hf` (see its `__init__`).
    import_module("onlstm_hf.registration")
    options.run(options)
