"""`onlstm-hf push`: upload of checkpoints and datasets to the Hugging Face Hub."""

import argparse

HELP = "upload a checkpoint folder to the Hub"
DESCRIPTION = """\
Uploads a checkpoint folder to the Hugging Face Hub: a language model or a classifier. First the folder is checked: the
model must load and parse (or classify), its code must be available, weights must be in safetensors files, unrelated
files are refused, and the card must be valid. The card is written from --results or from the folder's results.json;
without results it is the folder's README.md. One commit then uploads the files and deletes all others, so a failed
upload changes nothing, and pushing again is safe. The token is that of `hf auth login` or the variable HF_TOKEN.
"""
EXAMPLES = """\
examples:
  onlstm-hf push model_cards/onlstm-ptb-small user/onlstm-ptb-small --private
  onlstm-hf push runs/logic_onlstm/best user/logic-onlstm --results runs/logic_onlstm/results.json
  onlstm-hf push --dataset runs/listops user/listops
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="folder to upload")
    parser.add_argument("repository", metavar="USER/NAME", help="repository; created if it does not exist")
    parser.add_argument("--private", action="store_true", help="create, or require, a private repository")
    parser.add_argument("--revision", metavar="BRANCH", help="branch; created if it does not exist (default: main)")
    parser.add_argument("--token", help="token with write access (default: HF_TOKEN, or that of `hf auth login`)")
    parser.add_argument("--results", metavar="FILE", help="results.json of the training, if it is not in the folder")
    parser.add_argument("--dataset", action="store_true", help="FOLDER has .parquet or .jsonl files and a README.md")


def run(options: argparse.Namespace) -> None:
    from ..hub.push import push_dataset, push_model

    arguments = {name: getattr(options, name) for name in ("folder", "repository", "private", "revision", "token")}
    if options.dataset and options.results:
        raise ValueError("--results belongs to a model, not to a dataset")
    print(push_dataset(**arguments) if options.dataset else push_model(**arguments, results=options.results))
