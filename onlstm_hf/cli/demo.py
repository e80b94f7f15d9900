"""`onlstm-hf demo`: the web page."""

import argparse

from ..utils.programs import port_number

DESCRIPTION = """\
Shows a web page for sentences that you type: their trees, the distances of every layer and the surprisal of every
word. It needs pip install "onlstm_hf[demo]". The page asks no other server for anything.
"""
EXAMPLES = """\
examples:
  onlstm-hf demo
  onlstm-hf demo model_cards/onlstm-ptb-small runs/my-model/best --port 8080
  onlstm-hf demo --host 0.0.0.0 --allowed-host parser.example.org
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds `demo` to the subcommands."""
    parser = commands.add_parser("demo", help="web page", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument(
        "models",
        nargs="*",
        metavar="PATH_OR_NAME",
        help="models for the page to choose from (default: see `onlstm-hf --help`)",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; 0.0.0.0 lets other machines in (default: %(default)s, this machine alone)",
    )
    parser.add_argument(
        "--port", type=port_number, default=7860, metavar="N", help="port to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name under which others reach this machine; repeat the option for several names; addresses such as "
        "192.0.2.1 need none",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serves the page until the process is ended."""
    from ..demo.app import serve

    serve(options.models, options.host, options.port, options.allowed_host)
