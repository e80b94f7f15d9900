"""`onlstm-hf convert`: conversion of checkpoints of the authors' code."""

import argparse
from pathlib import Path

from ..utils.files import check_writable, written_folder
from .options import add_number

HELP = "convert a checkpoint of the authors' code"
DESCRIPTION = """\
Converts a file from the authors' scripts (Ordered-Neurons and PRPN of github.com/yikangshen) into a checkpoint folder
for from_pretrained. The file contains [model, criterion, optimizer], a model, or a state dict. The authors' code is
not needed. No code in the file is run: only tensors and the attributes of objects are read, and a file that calls any
other function is refused.
"""
EXAMPLES = """\
examples:
  onlstm-hf convert PTB.pt my-checkpoint --vocab-from train.txt valid.txt test.txt
  onlstm-hf convert state_dict.pt my-checkpoint --weight-dropout 0.45 --vocab-from train.txt valid.txt test.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="file from torch.save, or a state dict in .safetensors")
    parser.add_argument("out", metavar="OUT", help="new folder to write")
    settings = parser.add_argument_group(
        "settings that only a saved model contains",
        "For a state dict, give the values of its training if they differ from the defaults.",
    )
    settings.add_argument(
        "--weight-dropout",
        type=float,
        metavar="P",
        help="ON-LSTM: the option --wdrop of its training, which also scales weights in evaluation (default: 0.45)",
    )
    add_number(settings, "--num-slots", "PRPN: memory slots (default: 15)")
    settings.add_argument(
        "--resolution", type=float, metavar="R", help="PRPN: resolution of the distances (default: 0.1)"
    )
    settings.add_argument(
        "--hard",
        action=argparse.BooleanOptionalAction,
        help="PRPN: piecewise linear gates instead of sigmoids (default: hard)",
    )
    parser.add_argument(
        "--vocab-from",
        nargs="+",
        metavar="FILE",
        help="training texts for the tokenizer, in the order of the authors' code (train, valid, test); they must "
        "have as many distinct words as the model",
    )


def run(options: argparse.Namespace) -> None:
    """Writes the checkpoint folder and prints a summary."""
    from ..conversion.checkpoints import convert_original_checkpoint
    from ..utils.checkpoints import quiet_transformers

    out = Path(options.out)
    check_writable(out, is_new=True)
    settings = {name: getattr(options, name) for name in ("weight_dropout", "num_slots", "resolution", "hard")}
    overrides = {name: value for name, value in settings.items() if value is not None}
    model, tokenizer = convert_original_checkpoint(options.source, options.vocab_from, **overrides)
    with written_folder(out) as folder, quiet_transformers():
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
    print(
        f"{out}: {type(model).__name__}, {model.num_parameters():,} parameters, {model.config.vocab_size} words, "
        f"{'with its tokenizer' if tokenizer else 'without a tokenizer (--vocab-from builds it)'}"
    )
