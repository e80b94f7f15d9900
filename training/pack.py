"""Writes the model inside the package: `python training/pack.py [SOURCE TARGET]`.

To keep the wheel small, matrices are rounded to eight bits (float8, e4m3). Vectors stay unchanged. `from_pretrained`
converts all weights to float32. docs/installation.md states the cost of the rounding.
"""

import argparse
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.utils.checkpoints import PACKED_MODEL
from onlstm_hf.utils.files import written_folder

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=Path, default=ROOT / "model_cards" / PACKED_MODEL.name)
    parser.add_argument("target", nargs="?", type=Path, default=PACKED_MODEL, help="new folder to write")
    options = parser.parse_args(arguments)
    source, weights = options.source, load_file(options.source / "model.safetensors")
    for name, weight in weights.items():
        if weight.dim() > 1:
            weights[name] = weight.float().to(torch.float8_e4m3fn)
    with written_folder(options.target) as folder:
        for name in COPIED:
            shutil.copy(source / name, folder / name)
        card = (source / "README.md").read_text(encoding="utf-8")
        rounding = "Measured before matrices were rounded to eight bits as they are in this folder"
        (folder / "README.md").write_text(card.replace("Measured with the weights in this folder", rounding), "utf-8")
        save_file(weights, folder / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
