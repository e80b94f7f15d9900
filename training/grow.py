"""Makes a large ON-LSTM of a small one that has been trained, to be trained on: it predicts what the small one does.

    python training/grow.py model_cards/onlstm-ptb-small training/recipes/onlstm_ptb_cpu.yaml --output-dir runs/grown

The new model has the sizes and dropouts of the recipe. Units of the small one keep their order and all that they
compute; between them lie new ones with random incoming weights, to which the old ones and the decoder do not listen
yet. So training starts where that of the small model ended, and not from nothing. It is the idea of Net2Net (Chen,
Goodfellow & Shlens, ICLR 2016), whose new units are copies of old ones, though, and heard from the start.
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
from training.loop.recipe_parser import parse_groups

# Bias of a new chunk in the softmax behind a master gate. An old chunk's logit is around 0, so that the new ones
# together take a few per cent of the mass: the gates stay nearly as they were, and gradients reach the new rows.
NEW_CHUNK_LOGIT = -3.0


def grow(
    small: ONLSTMForCausalLM, config: ONLSTMConfig, new_chunk_logit: float = NEW_CHUNK_LOGIT
) -> ONLSTMForCausalLM:
    """A model of the sizes in `config` that computes what `small` does, but for the share of new chunks in the gates.

    Args:
        small: the trained model.
        config: of the new one: the same vocabulary and as many layers, none of which is smaller in any way.
        new_chunk_logit: the lower, the less new chunks take of the softmax behind a master gate. In the limit of minus
            infinity the two models have the same logits in evaluation.

    Raises:
        ValueError: where the one cannot be grown to the other.
    """
    _check_sizes(small.config, config)
    large = ONLSTMForCausalLM(config).to(small.dtype)
    scale = drop_connect_scale(small.config.weight_dropout, config.weight_dropout)
    with torch.no_grad():
        # The decoder reads the last layer with the embedding: their units lie in the same places.
        inputs = unit_places(small.model.layers[-1], large.model.layers[-1])
        large.model.embeddings.weight.zero_()
        large.model.embeddings.weight[:, inputs] = small.model.embeddings.weight
        large.get_output_embeddings().bias.copy_(small.get_output_embeddings().bias)
        for old, new in zip(small.model.layers, large.model.layers, strict=True):
            units, rows = unit_places(old, new), gate_places(old, new)
            # The master gates come first; those of old chunks get their own again.
            new.input_projection.bias[: 2 * (new.size // new.chunk_size)] = new_chunk_logit
            _grow_affine(old.input_projection, new.input_projection, rows, inputs)
            _grow_affine(old.recurrent_projection, new.recurrent_projection, rows, units, scale)
            inputs = units
    return large.eval()


def chunk_places(old: ONLSTMLayer, new: ONLSTMLayer) -> torch.Tensor:
    """Chunks of the new layer that hold the old ones: in the same order, spread evenly from the first on."""
    num_old, num_new = old.size // old.chunk_size, new.size // new.chunk_size
    return torch.arange(num_old) * num_new // num_old


def unit_places(old: ONLSTMLayer, new: ONLSTMLayer) -> torch.Tensor:
    """Units of the new layer that hold the old ones: the first ones of their chunks."""
    return (chunk_places(old, new)[:, None] * new.chunk_size + torch.arange(old.chunk_size)).flatten()


def gate_places(old: ONLSTMLayer, new: ONLSTMLayer) -> torch.Tensor:
    """Gates of the new layer that hold the old ones: two master gates of chunks, then four gates of units."""
    chunks, units = chunk_places(old, new), unit_places(old, new)
    num_chunks = new.size // new.chunk_size
    masters = [chunks + number * num_chunks for number in range(2)]
    return torch.cat([*masters, *(units + 2 * num_chunks + number * new.size for number in range(4))])


def _grow_affine(old: nn.Linear, new: nn.Linear, rows: torch.Tensor, columns: torch.Tensor, scale: float = 1) -> None:
    """Gives the rows of old units what they had, and 0 for new units; rows of new ones stay as they were drawn."""
    new.weight[rows] = 0
    new.weight[rows[:, None], columns] = scale * old.weight
    new.bias[rows] = old.bias


def _check_sizes(small: ONLSTMConfig, large: ONLSTMConfig) -> None:
    if not (
        small.tie_word_embeddings and large.tie_word_embeddings and small.num_softmaxes == large.num_softmaxes == 1
    ):
        raise ValueError("only models with tied embeddings and one softmax can be grown")
    for name in ("vocab_size", "num_hidden_layers"):
        if getattr(small, name) != getattr(large, name):
            raise ValueError(f"{name} is {getattr(small, name)} and cannot become {getattr(large, name)}")
    if large.chunk_size < small.chunk_size:
        raise ValueError(f"chunk_size is {small.chunk_size} and cannot become {large.chunk_size}: it may only grow")
    for layer, (old, new) in enumerate(zip(small.layer_sizes, large.layer_sizes, strict=True)):
        if new // large.chunk_size < old // small.chunk_size:
            raise ValueError(
                f"layer {layer} has {old // small.chunk_size} chunks of {small.chunk_size} units, and {new} units in "
                f"chunks of {large.chunk_size} are fewer: it may only grow"
            )


def grown_config(small: ONLSTMConfig, recipe: Path) -> ONLSTMConfig:
    """The configuration of the small model with the sizes and dropouts of a recipe."""
    needed = ["--output_dir", "any"]  # a recipe may leave it to the command line
    _, model, *_ = parse_groups([str(recipe), *needed], ARGUMENTS, "grow.py", "Grows an ON-LSTM.")
    if not small.model_type == model.model_type == "onlstm":
        raise ValueError(
            f'only an ON-LSTM can be grown to an ON-LSTM: the checkpoint is of type "{small.model_type}", '
            f'{recipe} for "{model.model_type}"'
        )
    known = {name: value for name, value in small.to_dict().items() if name != "layer_sizes"}
    return changed_config(small, known, model.model)


def write_grown(options: argparse.Namespace) -> None:
    """Loads the small model and writes the large one with the tokenizer."""
    if options.output_dir.exists():
        raise FileExistsError(f"{options.output_dir} exists already: choose another --output-dir")
    small, tokenizer = load_checkpoint(options.model)
    torch.manual_seed(options.seed)
    large = grow(small, grown_config(small.config, options.recipe))
    with replaced_folder(options.output_dir, Accelerator()) as folder, quiet_transformers():
        large.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    print(f"{options.output_dir}: {small.num_parameters():,} parameters have become {large.num_parameters():,}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="checkpoint folder or name on the Hub, of an ON-LSTM")
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="YAML file with the sizes to grow to")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=1111, help="seed of the new weights (%(default)s)")
    options = parser.parse_args(arguments)
    return run_program("grow.py", lambda: write_grown(options))


if __name__ == "__main__":
    sys.exit(main())
