"""`onlstm-hf convert`: checkpoints of the authors' code to checkpoint folders."""

import argparse
from pathlib import Path

from ..utils.files import check_writable, written_folder
from .options import add_number

HELP = "checkpoint of the authors' code to a checkpoint folder"
DESCRIPTION = """\
Turns a file that the authors' scripts saved (Ordered-Neurons and PRPN of github.com/yikangshen) into a folder for
from_pretrained. The file holds [model, criterion, optimizer], a model, or a state dict. The authors' code is not
needed, and nothing in the file is run: tensors are read, objects are read as records of their attributes, and a file
that calls anything else is refused.
"""
EXAMPLES = """\
examples:
  onlstm-hf convert PTB.pt my-checkpoint --vocab-from train.txt valid.txt test.txt
  onlstm-hf convert state_dict.pt my-checkpoint --weight-dropout 0.45 --vocab-from train.txt valid.txt test.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `convert`."""
    parser.add_argument("source", metavar="SOURCE", help="file that torch.save wrote, or a state dict in .safetensors")
    parser.add_argument("out", metavar="OUT", help="new folder to write")
    read_off = parser.add_argument_group(
        "settings that are read from a saved model",
        "A state dict does not have them. Give them for one, where its training had other values than the defaults.",
    )
    read_off.add_argument(
        "--weight-dropout",
        type=float,
        metavar="P",
        help="ON-LSTM: the option --wdrop of its training, which the trained model computes with (default: 0.45)",
    )
    add_number(read_off, "--num-slots", "PRPN: slots of the memory (default: 15)")
    read_off.add_argument(
        "--resolution", type=float, metavar="R", help="PRPN: resolution of the distances (default: 0.1)"
    )
    read_off.add_argument(
        "--hard",
        action=argparse.BooleanOptionalAction,
        help="PRPN: whether its gates are hard, that is, piecewise linear, or sigmoids (default: hard)",
    )
    parser.add_argument(
        "--vocab-from",
        nargs="+",
        metavar="FILE",
        help="text files of the training, to build the tokenizer from, in the order in which the authors' code read "
        "them (train, valid, test); they must have as many different words as the model",
    )


def run(options: argparse.Namespace) -> None:
    """Writes the checkpoint folder and says what is in it."""
    from ..conversion.checkpoints import convert_original_checkpoint
    from ..utils.checkpoints import quiet_transformers

    out = Path(options.out)
    check_writable(out, is_new=True)
    given = {name: getattr(options, name) for name in ("weight_dropout", "num_slots", "resolution", "hard")}
    overrides = {name: value for name, value in given.items() if value is not None}
    model, tokenizer = convert_original_checkpoint(options.source, options.vocab_from, **overrides)
    with written_folder(out) as folder, quiet_transformers():
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
    print(
        f"{out}: {type(model).__name__}, {model.num_parameters():,} parameters, {model.config.vocab_size} words, "
        f"{'with its tokenizer' if tokenizer else 'without a tokenizer (--vocab-from builds it)'}"
    )
