"""Conversion of the authors' checkpoint files, including pickled models, into models of this package."""

import math
import os
import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerFast

from ..text.tokenization import build_word_tokenizer
from ..utils.tokenizer_check import tokenizer_fingerprint
from .saved_objects import Record, dictionary_of, read_saved_object, tensor_of
from .state_dicts import convert_original_state_dict, original_vocabulary

# The authors' largest model has about a hundred modules and tensors. These limits refuse self-referential files.
_MAX_MEMBERS, _MAX_NAME_LENGTH = 10_000, 1000

# Settings that tensors do not show: for each configuration field the attribute of the authors' modules.
# The ON-LSTM has similar attributes (`dropouth`, `idrop.p`, ...) that its computation does not use.
_ATTRIBUTES = {
    "onlstm": {
        "embedding_dropout": "dropoute",
        "input_dropout": "dropouti",
        "hidden_dropout": "rnn.dropout",
        "output_dropout": "dropout",
        "weight_dropout": "rnn.cells.*.hh.dropout",
    },
    "prpn": {
        "num_slots": "parser.nslots",
        "resolution": "parser.resolution",
        "hard": "parser.hard",
        "input_dropout": "idrop.p",
        "output_dropout": "drop.p",
        "recurrent_dropout": "rdrop.p",
    },
}


def convert_original_checkpoint(
    path: str | os.PathLike,
    vocab_from: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
    **config_options,
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast | None]:
    """Builds a model and its tokenizer from a file of the authors' code, which is neither needed nor run.

    The file is from `torch.save` (torch 0.1.11 or newer) or a `.safetensors` file. It contains the list
    `[model, criterion, optimizer]` of the ON-LSTM script (github.com/yikangshen/Ordered-Neurons), the model of the
    PRPN scripts (github.com/yikangshen/PRPN), or a state dict of either.

    Sizes and weight tying come from the tensors. Dropouts, and the PRPN's slots, resolution and kind of gate, come
    from the attributes of the modules. For a state dict the defaults of `convert_original_state_dict` are used.

    Args:
        path: the file.
        vocab_from: training, validation and test text, in this order, for building the tokenizer. The authors' files
            have no vocabulary; their code numbers words in order of first appearance.
        config_options: configuration fields that override those of the file.

    Returns:
        The model, in evaluation mode, and the tokenizer, which is `None` without `vocab_from`.

    Raises:
        FileNotFoundError: if a file does not exist.
        ValueError: if the file is damaged, calls code, or has no such model; if the text and the model differ in the
            number of words; or if this model type lacks an option.
    """
    state_dict, attributes = _read_model(Path(path))
    model_type = _model_type(state_dict)
    fields = AutoConfig.for_model(model_type)
    if unknown := [name for name in config_options if not hasattr(fields, name)]:
        raise ValueError(f'the model of {path} is of type "{model_type}", which has no {", ".join(unknown)}')
    if model_type == "onlstm":
        # Without drop-connect the authors' layers register the weight a second time.
        state_dict = {name: tensor for name, tensor in state_dict.items() if not name.endswith(".hh._weight")}
    options = {} if attributes is None else _options(attributes, model_type, without=config_options)
    tokenizer = None
    if vocab_from is not None:
        files = [vocab_from] if isinstance(vocab_from, (str, os.PathLike)) else list(vocab_from)
        vocab_size = math.prod(state_dict["encoder.weight"].shape[:1]) if "encoder.weight" in state_dict else 0
        tokenizer = _build_tokenizer(files, vocab_size)
        options |= {name: getattr(tokenizer, name) for name in ("eos_token_id", "pad_token_id")}
        options["tokenizer_fingerprint"] = tokenizer_fingerprint(tokenizer)
    return convert_original_state_dict(state_dict, model_type, **(options | config_options)), tokenizer


def _read_model(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, float] | None]:
    """Reads the state dict of the file or of the model in it, and the numeric attributes of the model."""
    content, storages = read_saved_object(path)
    if isinstance(content, list) and content:
        content = content[0]
    attributes = None
    try:
        state_dict = dictionary_of(content)
        if state_dict is None:
            state_dict, attributes = _read_modules(content)
        state_dict = {name: tensor_of(value, storages) for name, value in state_dict.items()}
        _check_tensors(state_dict, file_size=path.stat().st_size)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} contains no model of the authors' code: {error}; expected [model, criterion, optimizer], a "
            "model, or a state dict"
        ) from error
    return state_dict, attributes


def _read_modules(model: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """Reads the tensors and numeric attributes of a module and its submodules, by name."""
    state_dict, attributes, pending, num_members = {}, {}, [("", model)], 0
    while pending:
        prefix, module = pending.pop()
        state = module.state if isinstance(module, Record) and isinstance(module.state, dict) else {}
        parameters, buffers, modules = map(dictionary_of, map(state.get, ("_parameters", "_buffers", "_modules")))
        if parameters is None or buffers is None or modules is None:
            raise ValueError("it has another object in place of a module")
        numbers = {name: value for name, value in state.items() if isinstance(value, (int, float)) and _is_name(name)}
        tensors = parameters | buffers
        num_members += len(numbers) + len(tensors) + len(modules)
        if num_members > _MAX_MEMBERS or len(prefix) > _MAX_NAME_LENGTH:
            raise ValueError("it has too many modules, or they contain themselves")
        if not all(map(_is_name, (*tensors, *modules))):
            raise ValueError("its tensors have invalid names")
        attributes |= {prefix + name: number for name, number in numbers.items()}
        state_dict |= {prefix + name: tensor for name, tensor in tensors.items() if tensor is not None}
        pending += [(f"{prefix}{name}.", child) for name, child in modules.items() if child is not None]
    return state_dict, attributes


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"\w{1,100}", name) is not None


def _check_tensors(state_dict: dict[Any, Any], file_size: int) -> None:
    if not all(isinstance(tensor, torch.Tensor) for tensor in state_dict.values()):
        raise ValueError("it has values other than named tensors")
    if not all(isinstance(name, str) and re.fullmatch(rf"[\w.]{{1,{_MAX_NAME_LENGTH}}}", name) for name in state_dict):
        raise ValueError("its tensors have invalid names")
    # The decoder may share the embedding's storage, but a thousand layers with one storage would exhaust memory.
    if sum(tensor.nbytes for tensor in state_dict.values()) > 2 * file_size:
        raise ValueError("many of its tensors share the same numbers")


def _model_type(names: Collection[str]) -> str:
    for model_type, prefix in (("onlstm", "rnn.cells."), ("prpn", "parser.")):
        if any(name.startswith(prefix) for name in names):
            return model_type
    examples = ", ".join(sorted(names)[:3]) or "nothing"
    raise ValueError(f"these are the tensors of neither an ON-LSTM nor a PRPN of the authors' code: {examples}")


def _options(attributes: dict[str, float], model_type: str, without: Collection[str]) -> dict[str, float]:
    options = {}
    for field, path in _ATTRIBUTES[model_type].items():
        if field in without:
            continue
        values = {value for name, value in attributes.items() if fnmatchcase(name, path)}
        if len(values) != 1:
            raise ValueError(f"cannot read {field} from the model, whose {path} should be one number; give {field}")
        options[field] = values.pop()
    return options


def _build_tokenizer(files: Sequence[str | os.PathLike], vocab_size: int) -> PreTrainedTokenizerFast:
    words = original_vocabulary(files)
    if len(words) != vocab_size:
        raise ValueError(
            f"the vocabulary does not fit: {', '.join(map(str, files))} have {len(words)} different words (<eos> "
            f"included), the model {vocab_size}; give its training files in the authors' order: train, valid, test"
        )
    if "<unk>" not in words:
        raise ValueError("the text has no <unk>, which a tokenizer needs for unknown words; convert without the text")
    is_treebank_text = {"N", "n't"}.issubset(words)
    rule = {"split": "treebank", "lowercase": True, "digits_to_n": True, "drop_punctuation": True}
    return build_word_tokenizer(
        vocabulary=words, pad_token="<eos>", padding_side="left", **(rule if is_treebank_text else {})
    )
