"""Grows a trained ON-LSTM into a larger one with the same predictions, for further training.

    python training/grow.py model_cards/onlstm-ptb-small training/recipes/onlstm_ptb_cpu.yaml --output-dir runs/grown

The new model has the sizes and dropouts of the recipe. Old units keep their order and function. New units between them
have random incoming weights and zero outgoing weights to old units and the decoder. Net2Net (Chen, Goodfellow &
Shlens, ICLR 2016) instead adds copies of old units, whose outgoing weights are not zero.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM
from onlstm_hf.models.modeling_onlstm import ONLSTMLayer
from onlstm_hf.utils.checkpoints import load_checkpoint, quiet_transformers
from onlstm_hf.utils.programs import run_program
from training.language_models.model_setup import drop_connect_scale
from training.language_models.recipe import ARGUMENTS
from training.loop.checkpointing import replaced_folder
from training.loop.model_setup import changed_config
from training.loop.recipe import parse_groups

# Bias of a new chunk in the softmax of a master gate. Logits of old chunks are around 0, so that all new chunks get a
# few per cent of the mass. The gates hardly change, and gradients reach the new rows.
NEW_CHUNK_LOGIT = -3.0


def grow(
    small: ONLSTMForCausalLM, config: ONLSTMConfig, new_chunk_logit: float = NEW_CHUNK_LOGIT
) -> ONLSTMForCausalLM:
    """Returns a model with the sizes of `config` and nearly the predictions of `small`.

    The new configuration has the same vocabulary and number of layers, and no smaller size. As the logit of new chunks
    in the softmax of a master gate goes to minus infinity, the logits of both models become the same in evaluation.
    """
    _check_sizes(small.config, config)
    large = ONLSTMForCausalLM(config).to(small.dtype)
    scale = drop_connect_scale(small.config.weight_dropout, config.weight_dropout)
    with torch.no_grad():
        # Embedding and decoder are tied, so that the embedding has the unit positions of the last layer.
        inputs = unit_places(small.model.layers[-1], large.model.layers[-1])
        large.model.embeddings.weight.zero_()
        large.model.embeddings.weight[:, inputs] = small.model.embeddings.weight
        large.get_output_embeddings().bias.copy_(small.get_output_embeddings().bias)
        for old, new in zip(small.model.layers, large.model.layers, strict=True):
            units, rows = unit_places(old, new), gate_places(old, new)
            # The biases of the master gates come first. Those of old chunks are restored below.
            new.input_projection.bias[: 2 * (new.size // new.chunk_size)] = new_chunk_logit
            _grow_affine(old.input_projection, new.input_projection, rows, inputs)
            _grow_affine(old.recurrent_projection, new.recurrent_projection, rows, units, scale)
            inputs = units
    return large.eval()


def chunk_places(old: ONLSTMLayer, new: ONLSTMLayer) -> torch.Tensor:
    """Returns the chunks of the new layer that hold the old ones, evenly spread from the first on."""
    num_old, num_new = old.size // old.chunk_size, new.size // new.chunk_size
    return torch.arange(num_old) * num_new // num_old


def unit_places(old: ONLSTMLayer, new: ONLSTMLayer) -> torch.Tensor:
    """Returns the units of the new layer that hold the old ones: the first ones of their chunks."""
    return (chunk_places(old, new)[:, None] * new.chunk_size + torch.arange(old.chunk_size)).flatten()


def gate_places(old: ONLSTMLayer, new: ONLSTMLayer) -> torch.Tensor:
    """Returns the gate rows of the new layer that hold the old ones: two master gates of chunks, four of units."""
    chunks, units = chunk_places(old, new), unit_places(old, new)
    num_chunks = new.size // new.chunk_size
    masters = [chunks + number * num_chunks for number in range(2)]
    return torch.cat([*masters, *(units + 2 * num_chunks + number * new.size for number in range(4))])


def _grow_affine(old: nn.Linear, new: nn.Linear, rows: torch.Tensor, columns: torch.Tensor, scale: float = 1) -> None:
    """Copies the old weights. Rows of old units get 0 for inputs from new units; rows of new units stay random."""
    new.weight[rows] = 0
    new.weight[rows[:, None], columns] = scale * old.weight
    new.bias[rows] = old.bias


def _check_sizes(small: ONLSTMConfig, large: ONLSTMConfig) -> None:
    if any(not config.tie_word_embeddings or config.num_softmaxes > 1 for config in (small, large)):
        raise ValueError("only models with tied embeddings and one softmax can be grown")
    for name in ("vocab_size", "num_hidden_layers"):
        if getattr(small, name) != getattr(large, name):
            raise ValueError(f"{name} is {getattr(small, name)} and cannot become {getattr(large, name)}: it is fixed")
    if large.chunk_size < small.chunk_size:
        raise ValueError(f"chunk_size is {small.chunk_size} and cannot become {large.chunk_size}: it can only grow")
    for layer, (old, new) in enumerate(zip(small.layer_sizes, large.layer_sizes, strict=True)):
        num_old, num_new = old // small.chunk_size, new // large.chunk_size
        if num_new < num_old:
            raise ValueError(f"layer {layer} has {num_old} chunks and cannot have {num_new}: it can only grow")


def grown_config(small: ONLSTMConfig, recipe: Path) -> ONLSTMConfig:
    """Returns the configuration of the small model with the sizes and dropouts of a recipe."""
    required = ["--output_dir", "unused"]  # recipes need not set it
    _, model, *_ = parse_groups([str(recipe), *required], ARGUMENTS, "grow.py", "Grows an ON-LSTM.")
    if not small.model_type == model.model_type == "onlstm":
        types = f'"{small.model_type}" cannot be grown to the type "{model.model_type}"'
        raise ValueError(f"a checkpoint of type {types} of {recipe}")
    fields = {name: value for name, value in small.to_dict().items() if name != "layer_sizes"}
    return changed_config(small, fields, model.model)


def write_grown(options: argparse.Namespace) -> None:
    if options.output_dir.exists():
        raise FileExistsError(f"{options.output_dir} exists already: choose another --output-dir")
    small, tokenizer = load_checkpoint(options.model)
    torch.manual_seed(options.seed)
    large = grow(small, grown_config(small.config, options.recipe))
    with replaced_folder(options.output_dir, Accelerator()) as folder, quiet_transformers():
        large.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    print(f"{options.output_dir}: grown from {small.num_parameters():,} to {large.num_parameters():,} parameters")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="checkpoint folder or Hub name of an ON-LSTM")
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="YAML file with the new sizes")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=1111, help="seed of the new weights (%(default)s)")
    options = parser.parse_args(arguments)
    return run_program("grow.py", lambda: write_grown(options))


if __name__ == "__main__":
    sys.exit(main())
