"""Shared parts of all models: configuration, state, loop over time, generation."""

import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from itertools import chain, repeat
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.utils import _pytree as pytree
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init

try:  # the installed package computes faster, exports loops, and saves the code of a model
    from onlstm_hf.fast.linear import Linear
    from onlstm_hf.fast.scan import scan_operator
    from onlstm_hf.utils.remote_code import save_with_code
except ImportError:
    Linear, scan_operator, save_with_code = nn.Linear, None, None


class RecurrentConfig(PreTrainedConfig):
    r"""
    Base class of the configurations: shared fields, and checks of all values.

    Args:
        vocab_size (`int`, defaults to 10000): Number of words.
        num_softmaxes (`int`, defaults to 1):
            Softmaxes in the mixture that predicts the next word (Yang et al., "Breaking the Softmax Bottleneck", ICLR
            2018). With several, the last layer may have any size.
        latent_dropout (`float`, defaults to 0.29): Locked dropout of the latent states of these softmaxes.
        tie_word_embeddings (`bool`, defaults to `True`): Whether the decoder's weight is the embedding.
        use_cache (`bool`, defaults to `True`): Whether the model returns its state.
        tokenizer_fingerprint (`str`, *optional*):
            Fingerprint of the model's tokenizer, which reveals another tokenizer (`utils/tokenizer_check.py`).
        treebank_preprocessing (`dict`, *optional*):
            How evaluation reads treebanks (`trees/treebank.py`); by default as in the papers.

    Raises:
        ValueError: if a value is out of its range.
    """

    # Fields whose ranges are checked, as are all named `..._dropout`; subclasses extend these tuples.
    positive_integers = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_softmaxes")
    not_negative = ("initializer_range",)
    # Layer, counted from 0, whose distances define the trees; `None` if there is no choice.
    parse_layer: ClassVar[int | None] = None
    # Outputs that `Trainer` leaves out of its predictions.
    keys_to_ignore_at_inference = ["state", "cross_entropy"]

    vocab_size: int = 10000
    embedding_size: int = 400
    hidden_size: int = 1150
    num_hidden_layers: int = 3
    initializer_range: float = 0.1
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    num_softmaxes: int = 1
    latent_dropout: float = 0.29
    tie_word_embeddings: bool = True
    use_cache: bool = True
    tokenizer_fingerprint: str | None = None
    treebank_preprocessing: dict | None = None

    @property
    def output_size(self) -> int:
        """Units of the `last_hidden_state` of a model without a head."""
        return self.embedding_size

    def __post_init__(self, **kwargs):
        number = (int, float)
        probabilities = [field.name for field in fields(self) if field.name.endswith("_dropout")]
        flags = [field.name for field in fields(self) if field.type is bool]
        self.require(self.positive_integers, int, lambda value: value > 0, "a positive integer")
        self.require(probabilities, number, lambda value: 0 <= value < 1, "a probability in [0, 1)")
        self.require(self.not_negative, number, lambda value: 0 <= value < math.inf, "a number that is not negative")
        self.require(flags, bool, lambda value: True, "true or false")
        if self.tokenizer_fingerprint is not None:
            is_valid = re.compile(r"\d+:[0-9a-f]+").fullmatch
            self.require(["tokenizer_fingerprint"], str, is_valid, 'a number and a hash ("9:64d285")')
        # AutoModel chooses among the classes of one type by this field; it must not be None.
        self.architectures = self.architectures or []
        super().__post_init__(**kwargs)

    def require(
        self, names: Iterable[str], types: type | tuple[type, ...], is_valid: Callable[[Any], bool], expected: str
    ) -> None:
        """Raises a `ValueError` for a field of another type (`bool` is no `int` here), or with an invalid value."""
        for name in names:
            value = getattr(self, name)
            is_type = isinstance(value, types) and (types is bool or not isinstance(value, bool))
            if not (is_type and is_valid(value)):
                raise ValueError(f"{name} must be {expected}, not {value!r}")

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """Extends the base class: refuses the configuration of another type of model.

        Arguments of `from_pretrained` override the file's values before the checks.
        """
        model_type = config_dict.get("model_type", cls.model_type)
        if model_type != cls.model_type:
            raise ValueError(f'this is the configuration of a "{model_type}" model, and "{cls.model_type}" is needed')
        if cls._auto_class is None:  # A class of the package ignores the code that a checkpoint carries.
            carried = ("auto_map", "custom_pipelines")
            config_dict = {name: value for name, value in config_dict.items() if name not in carried}
        own_fields = {field.name for field in fields(cls)} - {field.name for field in fields(PreTrainedConfig)}
        changes = {name: kwargs.pop(name) for name in own_fields & kwargs.keys()}
        return super().from_dict({**config_dict, **changes}, **kwargs)


class ModelState:
    """Base class of the states: dataclasses of tensors and of tuples, lists and dicts of tensors, batch first.

    `generate` passes on and reorders a state; training detaches it between the chunks of a stream.
    """

    # `generate` treats the state as a cache: it cannot be cropped, and its steps are not compiled.
    is_croppable = False
    is_compileable = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # For torch.compile, torch.export and FSDP. The module name distinguishes the copies in checkpoints.
        pytree.register_pytree_node(
            cls,
            lambda state: ([getattr(state, each.name) for each in fields(state)], None),  # torch 2.9 cannot trace vars
            lambda values, _: cls(*values),
            serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
            flatten_with_keys_fn=lambda state: (
                [(pytree.GetAttrKey(each.name), getattr(state, each.name)) for each in fields(state)],
                None,
            ),
        )
        # Lets `torch.load` read a saved state with `weights_only=True`.
        torch.serialization.add_safe_globals([cls])

    @property
    def batch_size(self) -> int:
        return pytree.tree_leaves(self)[0].shape[0]

    def __getitem__(self, row: int) -> "ModelState":
        """Returns the state of one row as a batch of one; pipelines split the outputs of a batch."""
        return self.map(lambda tensor: tensor[row].unsqueeze(0))

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "ModelState":
        """Returns a new state with `function` applied to every tensor."""
        return pytree.tree_map(function, self)

    def detach(self) -> "ModelState":
        return self.map(torch.Tensor.detach)

    def to(self, *args, **kwargs) -> "ModelState":
        """Returns the state on another device or in another dtype; arguments as for `torch.Tensor.to`."""
        return self.map(lambda tensor: tensor.to(*args, **kwargs))

    def index_select(self, indices: torch.LongTensor) -> "ModelState":
        """Returns the states of the given rows of the batch, in the given order."""
        return self.map(lambda tensor: tensor.index_select(0, indices.to(tensor.device)))

    def repeat_interleave(self, repeats: int) -> "ModelState":
        """Repeats every row `repeats` times, copies next to each other, as `generate` expands a batch."""
        return self.map(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Selects rows in place, for beam search."""
        vars(self).update(vars(self.index_select(beam_idx)))


@dataclass
class RecurrentState(ModelState):
    """State of a stack of recurrent layers between two tokens.

    Attributes:
        layers: for each layer, lowest first, its tensors, such as the hidden state `[B, H]` and the cell state.
    """

    layers: tuple[tuple[torch.Tensor, ...], ...]


# Loop over time


def loop(step: Callable, state: tuple, sequences: tuple[torch.Tensor | None, ...]) -> tuple[tuple, tuple]:
    """Calls `state, outputs = step(state, entries)` for each step; returns the last state, and all outputs, stacked.

    `sequences` are `[T, ...]` each; one that is `None` (not the first) gives `None` to every step.
    """
    steps = [repeat(None) if entries is None else entries.unbind(0) for entries in sequences]
    outputs = []
    for entries in zip(*steps, strict=False):
        state, output = step(state, entries)
        outputs.append(output)
    return state, tuple(torch.stack(entries) for entries in zip(*outputs, strict=True))


def scan(step: Callable, state: tuple, sequences: tuple[torch.Tensor | None, ...]) -> tuple[tuple, tuple]:
    """Computes `loop`; in compiled and exported graphs as one operator, if the package is installed."""
    run = scan_operator if scan_operator is not None and torch.compiler.is_compiling() else loop
    return run(step, state, sequences)


# Implementations that run the equations as they are written.
LOOPS = {"reference": loop, "scan": scan}


def state_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Returns the dtype of states and gates: float64 for float64 inputs, else float32."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def is_plain(*modules: nn.Module) -> bool:
    """Returns whether each module is an `nn.Linear` with dense weights, parametrised or not, without hooks."""
    return has_no_hooks(*modules) and all(
        type_before_parametrizations(one) in (nn.Linear, Linear) and owns_storage(one.weight) for one in modules
    )


def has_no_hooks(*modules: nn.Module) -> bool:
    """Returns whether the modules have no hooks and no replaced `forward`."""
    return all(
        "forward" not in vars(module)
        and not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
        for module in modules
    )


def owns_storage(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor stores its values itself, unlike quantised and offloaded weights."""
    return not hasattr(type(tensor), "__tensor_flatten__") and tensor.device.type != "meta"


# The base class of all models


class RecurrentPreTrainedModel(PreTrainedModel):
    """Loading, saving, initialisation and the choice of an implementation."""

    auto_class_name: str | None = None  # the Auto class that loads a checkpoint of this class
    induces_trees = False  # whether `parse` gives trees
    takes_pairs = False  # whether the model classifies pairs of sequences
    config: RecurrentConfig
    base_model_prefix = "model"
    _input_embed_layer = "embeddings"
    _is_stateful = True  # tells `generate` that the state cannot be rolled back

    def save_pretrained(self, save_directory: str | os.PathLike, *arguments, **options) -> None:
        """Saves the model and, if the package is installed, the code that loads it without the package."""
        save = super().save_pretrained
        if save_with_code is None:
            return save(save_directory, *arguments, **options)
        return save_with_code(self, save, save_directory, *arguments, **options)

    @property
    def parse_layer(self) -> int | None:
        """Layer, counted from 0, whose distances define the trees; `None` if there is no choice."""
        return self.config.parse_layer

    def set_implementation(self, implementation: str) -> None:
        """Chooses how the model is computed. Results are equal up to rounding.

        Args:
            implementation: `"auto"`, the fastest path that supports each input; `"reference"`, the equations in the
                model's file, differentiated by autograd; `"scan"`, the same with the loop as one operator, for export;
                or a fast path (`"native"`, `"triton"`). Modules without that path use `"auto"`.

        Raises:
            ValueError: if no module of this model has the implementation.
        """
        modules = [module for module in self.modules() if hasattr(module, "implementations")]
        names = chain.from_iterable(module.implementations for module in modules)
        supported = dict.fromkeys(["auto", "reference", *names])
        if implementation not in supported:
            raise ValueError(f"implementation must be one of {', '.join(supported)}, not {implementation!r}")
        for module in modules:
            module.implementation = implementation if implementation in module.implementations else "auto"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        bound = self.config.initializer_range
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -bound, bound)
        elif module is self.get_output_embeddings():
            init.uniform_(module.weight, -bound, bound)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Linear | nn.Conv1d):
            bound = module.weight[0].numel() ** -0.5
            init.uniform_(module.weight, -bound, bound)
            if module.bias is not None:
                init.uniform_(module.bias, -bound, bound)


# Checks of inputs


def check_inputs(
    model: PreTrainedModel,
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None = None,
    further_arguments: dict | None = None,
) -> None:
    """Raises a `ValueError` unless exactly one input is given, of the right shape, inside the vocabulary.

    Of further arguments only `None` and `output_attentions=False` are allowed, which tools pass to every model.
    """
    unknown = {name: value for name, value in (further_arguments or {}).items() if value is not None}
    if unknown.get("output_attentions") is False:
        del unknown["output_attentions"]
    if unknown:
        hint = "it has no position ids or key-value cache; give earlier context as `state`"
        raise ValueError(f"{type(model).__name__} takes no argument {', '.join(unknown)}: {hint}")
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give exactly one of input_ids and inputs_embeds")
    vocab_size, size = model.embeddings.weight.shape
    if input_ids is not None:
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids must be [batch_size, sequence_length], not {list(input_ids.shape)}")
        check_vocabulary("input_ids", input_ids, vocab_size)
    elif inputs_embeds.dim() != 3 or inputs_embeds.shape[-1] != size:
        raise ValueError(f"inputs_embeds must be [batch, length, {size}], not {list(inputs_embeds.shape)}")
    if (input_ids if inputs_embeds is None else inputs_embeds).shape[1] == 0:
        raise ValueError("the input is empty: a sequence needs at least one token")


def check_vocabulary(name: str, ids: torch.Tensor, vocab_size: int) -> None:
    """Raises a `ValueError` for ids outside the vocabulary. Does nothing on a GPU, which would wait, or compiled."""
    if ids.device.type != "cpu" or torch.compiler.is_compiling():
        return
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.numel():
        hint = "does the tokenizer belong to this model?"
        raise ValueError(f"{name} hold the id {outside[0]}, which is outside the vocabulary of {vocab_size}: {hint}")


def real_tokens(attention_mask: torch.Tensor | None, inputs: torch.Tensor) -> torch.Tensor | None:
    """Returns the mask of inputs `[B, T, ...]` as booleans `[B, T]`, `False` at padding.

    Raises:
        ValueError: if the mask has another shape, or values other than 0 and 1.
    """
    if attention_mask is None:
        return None
    given, expected = list(attention_mask.shape), list(inputs.shape[:2])
    if given != expected:
        raise ValueError(f"attention_mask must have the shape of the input, {expected}, not {given}")
    mask = attention_mask == 1
    if attention_mask.device.type == "cpu" and not torch.compiler.is_compiling():
        other = attention_mask[~mask & (attention_mask != 0)]
        if other.numel():
            raise ValueError(f"attention_mask must be 1 at real tokens and 0 at padding, not {other[0].item()}")
    return mask.to(inputs.device)


def check_state(state: ModelState | None, initial: ModelState, device: torch.device) -> ModelState:
    """Returns the state (`initial` for `None`) on the device; raises a `ValueError` if its shapes are wrong."""
    state = initial if state is None else state
    expected, actual = ([tuple(tensor.shape) for tensor in pytree.tree_leaves(one)] for one in (initial, state))
    if actual != expected:
        raise ValueError(f"the state does not fit the model or batch: expected shapes {expected}, got {actual}")
    return state.to(device)


# Generation


class RecurrentGenerationMixin(GenerationMixin):
    """`generate` with the `state` as its cache.

    Transformers recognises the class of remote code by the `GenerationMixin` in its name.
    """

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    # `generate` accepts `inputs_embeds` only if this signature names it.
    def prepare_inputs_for_generation(self, input_ids, inputs_embeds=None, **kwargs):
        """Returns the inputs of one step: the tokens that the state has not seen, and their part of the mask."""
        kwargs.pop("tokenizer", None)  # that of `stop_strings`
        method = vars(self).get("prepare_inputs_for_generation")
        if getattr(method, "__self__", self) is not self:
            # PEFT's learned prompts replace this method and prepend the prompt in every call, which rereads the text.
            kwargs |= {"state": None, "next_sequence_length": None}
        inputs = super().prepare_inputs_for_generation(input_ids, inputs_embeds=inputs_embeds, **kwargs)
        tokens = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
        if inputs.get("attention_mask") is not None:
            inputs["attention_mask"] = inputs["attention_mask"][:, -tokens.shape[1] :]
        return inputs

    def _maybe_initialize_input_ids_for_generation(self, inputs, bos_token_id, model_kwargs):
        """Extends the base class: a prompt without tokens, too, becomes `bos_token_id`."""
        if inputs is not None and inputs.shape[1] == 0 and not {"inputs_embeds", "state"} & model_kwargs.keys():
            model_kwargs["attention_mask"] = torch.ones(len(inputs), 1, dtype=torch.long, device=inputs.device)
            inputs = None
        return super()._maybe_initialize_input_ids_for_generation(inputs, bos_token_id, model_kwargs)

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs, *args, **kwargs):
        # Transformers 5.24 and later itself passes on only a `cache`.
        if "state" in outputs:
            model_kwargs["state"] = outputs.state
        return super()._update_model_kwargs_for_generation(outputs, model_kwargs, *args, **kwargs)

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **model_kwargs):
        if expand_size > 1 and model_kwargs.get("state") is not None:
            model_kwargs["state"] = model_kwargs["state"].repeat_interleave(expand_size)
        return super()._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **model_kwargs)
