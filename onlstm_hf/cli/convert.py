"""`onlstm-hf convert`: conversion of checkpoints of the authors' code."""

import argparse
from pathlib import Path

from ..utils.files import check_writable, written_folder
from .options import add_number

HELP = "convert a checkpoint of the authors' code"
DESCRIPTION = """\
Converts a file from the authors' scripts (Ordered-Neurons and PRPN of github.com/yikangshen) into a checkpoint folder
for from_pretrained. The file contains [model, criterion, optimizer], a model, or a state dict. No code in it is run,
and the authors' code is not needed. A file that calls any function but those of tensors is refused.
"""
EXAMPLES = """\
examples:
  onlstm-hf convert PTB.pt my-checkpoint --vocab-from train.txt valid.txt test.txt
  onlstm-hf convert state_dict.pt my-checkpoint --weight-dropout 0.45 --vocab-from train.txt valid.txt test.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="file from torch.save, or a state dict in .safetensors")
    parser.add_argument("out", metavar="OUT", help="new folder to write")
    parser.add_argument(
        "--weight-dropout",
        type=float,
        metavar="P",
        help="--wdrop in the training of an ON-LSTM, which a state dict does not contain (default: 0.45)",
    )
    add_number(parser, "--num-slots", "memory slots of a PRPN, for a state dict (default: 15)")
    resolution = "resolution of a PRPN's distances, for a state dict (default: 0.1)"
    parser.add_argument("--resolution", type=float, metavar="R", help=resolution)
    hard = "whether a PRPN has piecewise linear gates, for a state dict (default: --hard)"
    parser.add_argument("--hard", action=argparse.BooleanOptionalAction, help=hard)
    parser.add_argument(
        "--vocab-from",
        nargs="+",
        metavar="FILE",
        help="texts for the tokenizer (train, valid and test, in this order), with as many words as the model",
    )


def run(options: argparse.Namespace) -> None:
    from ..conversion.checkpoints import convert_original_checkpoint
    from ..utils.checkpoints import quiet_transformers

    out = Path(options.out)
    check_writable(out, is_new=True)
    settings = {name: getattr(options, name) for name in ("weight_dropout", "num_slots", "resolution", "hard")}
    settings = {name: value for name, value in settings.items() if value is not None}
    model, tokenizer = convert_original_checkpoint(options.source, options.vocab_from, **settings)
    with written_folder(out) as folder, quiet_transformers():
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
    print(
        f"{out}: {type(model).__name__}, {model.num_parameters():,} parameters, {model.config.vocab_size} words, "
        f"{'with its tokenizer' if tokenizer else 'without a tokenizer (--vocab-from builds it)'}"
    )
