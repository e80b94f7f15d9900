"""Loading of checkpoints with checks and clear errors, for the command line and the evaluation scripts."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

from .tokenizer_check import check_tokenizer, tokenizer_fingerprint

RELEASED_MODEL = Path("model_cards", "onlstm-english")
# The same with rounded weights inside the package, for installations without a checkout (`training/pack.py`).
PACKED_MODEL = Path(__file__).resolve().parents[1] / "pretrained" / RELEASED_MODEL.name
# Libraries that write to the terminal when a checkpoint is loaded or saved.
_NOISY_LOGGERS = ("transformers", "huggingface_hub", "accelerate.utils.other")


def default_model() -> str:
    """Returns the folder of the default model for `onlstm_hf.DEFAULT_MODEL` and the commands.

    This is `ONLSTM_MODEL` of the environment, the released model of a checkout, or the packed one.
    """
    if os.environ.get("ONLSTM_MODEL"):
        return os.environ["ONLSTM_MODEL"]
    for folder in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (folder / RELEASED_MODEL / "config.json").is_file():
            return str(folder / RELEASED_MODEL)
    return str(PACKED_MODEL)


def load_checkpoint(
    name: str,
    any_causal_model: bool = False,
    auto_class: type = AutoModelForCausalLM,
    trust_remote_code: bool = False,
    dtype: str = "float32",
    implementation: str = "auto",
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads a model, on the GPU if there is one, and its tokenizer, from a folder or the Hub.

    Args:
        any_causal_model: whether to accept language models that are not from this package.
        auto_class: the Auto class of Transformers that loads the model; `trust_remote_code` and `dtype` are for it.
        implementation: see `set_implementation`, for models of this package.

    Raises:
        FileNotFoundError: if the folder, its configuration or its tokenizer does not exist.
        ValueError: if the checkpoint cannot be loaded or is no model of this package, if weights are missing or not
            finite, if the tokenizer does not fit, or if the implementation does not exist.
    """
    is_folder = Path(name).is_dir()
    if not is_folder and not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        source = ", which ONLSTM_MODEL names" if name == os.environ.get("ONLSTM_MODEL") else ""
        raise FileNotFoundError(f"there is no checkpoint folder {name}{source}")
    if is_folder and not (Path(name) / "config.json").is_file():
        raise FileNotFoundError(f"{name} is no checkpoint folder: it has no config.json")
    if is_folder and not any(Path(name).glob("tokenizer*")):
        raise FileNotFoundError(
            f"the checkpoint {name} has no tokenizer; for a converted one, `onlstm-hf convert --vocab-from` builds it"
        )
    hint = "" if is_folder else " (there is no folder of this name)"
    with quiet_transformers():
        try:  # corrupt and foreign files can raise any exception
            model, report = auto_class.from_pretrained(
                name, dtype=dtype, trust_remote_code=trust_remote_code, output_loading_info=True
            )
        except Exception as error:
            raise ValueError(f"cannot load the model {name}{hint}: {error}") from error
        if auto_class is AutoModelForCausalLM and not (any_causal_model or hasattr(model, "parse")):
            raise ValueError(f"{name} is no model of this package: it is of type {model.config.model_type}")
        if missing := sorted(report["missing_keys"]):
            raise ValueError(f"the model {name} lacks {len(missing)} of its weights, for instance {missing[0]}")
        for parameter_name, parameter in model.named_parameters():
            if not parameter.isfinite().all():
                raise ValueError(f"the weights of {name} contain NaN or infinity ({parameter_name})")
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
        except Exception as error:
            raise ValueError(f"cannot load the tokenizer of {name}: {error}") from error
    check_tokenizer(tokenizer, model.config, f"the tokenizer of {name}")
    if implementation != "auto":
        if not hasattr(model, "set_implementation"):
            raise ValueError(f"{name} is no model of this package, and has no implementation {implementation!r}")
        model.set_implementation(implementation)
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def checkpoint_hash(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns a hash of a model's configuration and weights and of its tokenizer, independent of their location."""
    config = {name: value for name, value in model.config.to_diff_dict().items() if name != "transformers_version"}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    digest.update((tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else "").encode())
    digest.update(tokenizer_fingerprint(tokenizer).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppresses progress bars and warnings of loading and saving within the block; errors are still raised."""
    levels = {logger: logger.level for logger in map(logging.getLogger, _NOISY_LOGGERS)}
    shows_progress = is_progress_bar_enabled()
    for logger, level in levels.items():
        logger.setLevel(max(level, logging.ERROR))
    disable_progress_bar()
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
        if shows_progress:
            enable_progress_bar()
