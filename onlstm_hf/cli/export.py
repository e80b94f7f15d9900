"""`onlstm-hf export`: a checkpoint with all files that it needs without this package."""

import argparse

HELP = "copy a checkpoint together with its code"
DESCRIPTION = """\
Writes a checkpoint into a new folder as `onlstm-hf push` would upload it, with its code. Transformers then loads it
with trust_remote_code=True, without this package. The weights are copied unchanged.
"""
EXAMPLES = """\
examples:
  onlstm-hf export model_cards/onlstm-ptb-small exported
  onlstm-hf export runs/my-model/best exported
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint folder")
    parser.add_argument("folder", metavar="FOLDER", help="new folder to write")


def run(options: argparse.Namespace) -> None:
    from ..hub.export import export_checkpoint

    print(export_checkpoint(options.checkpoint, options.folder))
