"""`onlstm-hf page`: the web page as a folder of files."""

import argparse

from .options import add_choice

HELP = "write the web page as a folder of files"
DESCRIPTION = """\
Writes a web page with checkpoints into a new folder. The browser computes the trees, so any web server can host the
folder. It can also be uploaded unchanged as a static Space of the Hugging Face Hub.
"""
EXAMPLES = """\
examples:
  onlstm-hf page my-page
  onlstm-hf page my-page model_cards/onlstm-ptb-small-distilled model_cards/prpn-ptb-small
  python -m http.server --directory my-page
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="new folder to write")
    add_models(parser)
    add_choice(parser, "--precision", ["int8", "float32"], "weights; int8 needs less than half the space of float32")


def add_models(parser: argparse.ArgumentParser) -> None:
    """Adds the checkpoints, also for `demo`."""
    parser.add_argument(
        "models",
        nargs="*",
        default=[],
        metavar="CHECKPOINT",
        help="checkpoint folders or names on the Hub; the page opens with the first (default: see `onlstm-hf --help`)",
    )


def run(options: argparse.Namespace) -> None:
    from ..page.site import write_page
    from ..utils.checkpoints import default_model

    write_page(options.folder, options.models or [default_model()], precision=options.precision)
    print(f"{options.folder} contains the page; to open it: python -m http.server --directory {options.folder}")
