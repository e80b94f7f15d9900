"""`onlstm-hf push` and `onlstm-hf push-metric`: checkpoints and metrics shared on the Hugging Face Hub."""

import argparse

MODEL_DESCRIPTION = """\
Shares a checkpoint folder on the Hugging Face Hub: a language model, or a classifier of pairs.

First the folder is checked: that the model loads and parses (or classifies a pair), that its weights are in
safetensors files, that it carries its code and nothing else, and that its card is valid. The card is written from
--results, or from results.json where the folder has one; otherwise it is the README.md of the folder.

Then everything is uploaded as one commit, after which the repository has these files and no others. If the upload
fails, the repository stays as it was; one that was created for the upload is empty. If the connection breaks before
the Hub has answered, the command looks whether the commit was made, and if so, the push has succeeded. It is safe to
push again in any case: nothing is committed twice.
"""
METRIC_DESCRIPTION = """\
Shares a metric folder as a Space of the Hugging Face Hub, as one commit. evaluate.load("user/name") then finds the
metric. It looks for a file name.py there, so the Space must be named like the module in the folder.
"""
EXAMPLES = """\
examples:
  onlstm-hf push model_cards/onlstm-ptb-small user/onlstm-ptb-small --private
  onlstm-hf push runs/logic_onlstm/best user/logic-onlstm --results runs/logic_onlstm/results.json
  onlstm-hf push-metric eval/parsing_f1 user/parsing_f1
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Adds `push` and `push-metric` to the subcommands."""
    model = commands.add_parser(
        "push", help="share a checkpoint folder on the Hub", description=MODEL_DESCRIPTION, epilog=EXAMPLES
    )
    metric = commands.add_parser(
        "push-metric", help="share a metric folder as a Space", description=METRIC_DESCRIPTION, epilog=EXAMPLES
    )
    for parser in (model, metric):
        parser.add_argument("folder", metavar="FOLDER", help="folder to upload")
        parser.add_argument("repository", metavar="USER/NAME", help="repository; it is created if it does not exist")
        parser.add_argument(
            "--private",
            action="store_true",
            help="make the repository private; an existing one must be private already",
        )
        parser.add_argument(
            "--revision", metavar="BRANCH", help="branch to commit to; it is created if need be (default: main)"
        )
        parser.add_argument(
            "--token",
            metavar="TOKEN",
            help="a token with write access (default: the environment variable HF_TOKEN, or that of `hf auth login`)",
        )
    model.add_argument("--results", metavar="FILE", help="results.json of the training, if it is not in the folder")
    model.set_defaults(run=run_push)
    metric.set_defaults(run=run_push_metric)


def run_push(options: argparse.Namespace) -> None:
    """Shares a checkpoint and prints the address of the commit."""
    from ..hub.push import push_model

    print(push_model(**_place(options), results=options.results))


def run_push_metric(options: argparse.Namespace) -> None:
    """Shares a metric and prints the address of the commit."""
    from ..hub.push import push_metric

    print(push_metric(**_place(options)))


def _place(options: argparse.Namespace) -> dict:
    return {name: getattr(options, name) for name in ("folder", "repository", "private", "revision", "token")}
