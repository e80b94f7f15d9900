"""`onlstm-hf push`: checkpoints and data sets shared on the Hugging Face Hub."""

import argparse

HELP = "share a checkpoint folder on the Hub"
DESCRIPTION = """\
Shares a checkpoint folder on the Hugging Face Hub: a language model, or a classifier of pairs.

First the folder is checked: that the model loads and parses (or classifies a pair), that its weights are in
safetensors files, that it carries its code and nothing else, and that its card is valid. The card is written from
--results, or from results.json where the folder has one; otherwise it is the README.md of the folder.

Then everything is uploaded as one commit, after which the repository has these files and no others. If the upload
fails, the repository stays as it was; one that was created for the upload is empty. It is safe to push again: nothing
is committed twice.
"""
EXAMPLES = """\
examples:
  onlstm-hf push model_cards/onlstm-ptb-small user/onlstm-ptb-small --private
  onlstm-hf push runs/logic_onlstm/best user/logic-onlstm --results runs/logic_onlstm/results.json
  onlstm-hf push --dataset runs/listops user/listops
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `push`."""
    parser.add_argument("folder", metavar="FOLDER", help="folder to upload")
    parser.add_argument("repository", metavar="USER/NAME", help="repository; it is created if it does not exist")
    parser.add_argument(
        "--private", action="store_true", help="make the repository private; an existing one must be private already"
    )
    parser.add_argument(
        "--revision", metavar="BRANCH", help="branch to commit to; it is created if need be (default: main)"
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help="a token with write access (default: the environment variable HF_TOKEN, or that of `hf auth login`)",
    )
    parser.add_argument("--results", metavar="FILE", help="results.json of the training, if it is not in the folder")
    parser.add_argument(
        "--dataset",
        action="store_true",
        help="FOLDER is a data set: .parquet or .jsonl files with a README.md (see training/write_data.py)",
    )


def run(options: argparse.Namespace) -> None:
    """Shares a checkpoint or a data set and prints the address of the commit."""
    from ..hub.push import push_dataset, push_model

    arguments = {name: getattr(options, name) for name in ("folder", "repository", "private", "revision", "token")}
    if options.dataset and options.results:
        raise ValueError("--results are those of a model; a data set has none")
    print(push_dataset(**arguments) if options.dataset else push_model(**arguments, results=options.results))
