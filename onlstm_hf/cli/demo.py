"""`onlstm-hf demo`: the web page on a local server."""

import argparse
import tempfile
from pathlib import Path

from ..utils.programs import port_number
from .page import add_models

HELP = "serve the web page on this machine"
DESCRIPTION = """\
Serves the web page on this machine until Ctrl-C: trees of sentences that you type, step by step, with the gates and
next-word predictions of the model, minimal pairs and exercises. The browser does all computation.
"""
EXAMPLES = """\
examples:
  onlstm-hf demo
  onlstm-hf demo model_cards/onlstm-ptb-small runs/my-model/best --port 8080
  onlstm-hf demo --host 0.0.0.0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    host = "address to listen on; 0.0.0.0 accepts other machines (default: %(default)s, only this machine)"
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help=host)
    parser.add_argument("--port", type=port_number, default=7860, metavar="N", help="port (default: %(default)s)")


def run(options: argparse.Namespace) -> None:
    from ..page.serving import build_server
    from ..page.site import write_page
    from ..utils.checkpoints import default_model

    with tempfile.TemporaryDirectory(prefix="onlstm-hf-page-") as temporary:
        folder = Path(temporary, "page")
        write_page(folder, options.models or [default_model()], precision="float32", offline=False)
        with build_server(folder, options.host, options.port) as server:
            print(f"The page is at http://{options.host}:{server.server_port}/ until Ctrl-C ends it.", flush=True)
            server.serve_forever()
