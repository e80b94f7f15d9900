"""What all recurrent language models of this package share: checked inputs, the head, its loss, and generation."""

import os
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import CONFIG_NAME, ModelOutput, can_return_tuple

from ...fast.labels import IGNORED_LABEL, check_vocabulary, next_token_targets
from ...fast.linear import Linear
from ...fast.projections import is_plain
from ...fast.vocabulary_loss import next_token_loss, projected_next_token_loss
from ...utils.remote_code import write_code
from .configuration import RecurrentConfig
from .generation import RecurrentGenerationMixin
from .softmax_mixture import SoftmaxMixture
from .state import ModelState

# Of `save_pretrained`, what `push_to_hub` takes.
HUB_OPTIONS = ("repo_id", "commit_message", "commit_description", "private", "token", "revision", "create_pr", "tags")


@dataclass
class RecurrentModelOutput(ModelOutput):
    r"""
    Output of a model without a head.

    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, sequence_length, size)`):
            Output of the last layer, after the output dropout; the input of the head.
        state (`ModelState`, *optional*, returned when `use_cache=True`):
            What the model knows after the last real token of every row, to go on from.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, returned when `output_hidden_states=True`):
            The embedded input, then the output of every layer before dropout, each
            `(batch_size, sequence_length, size)`.
    """

    last_hidden_state: torch.FloatTensor | None = None
    state: ModelState | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class RecurrentCausalLMOutput(ModelOutput):
    r"""
    Output of a model with the head that predicts the next token.

    Args:
        loss (`torch.FloatTensor` of shape `()`, *optional*, returned when `labels` or `shift_labels` are given):
            Mean cross-entropy in nats; in training mode plus the penalties that the model has.
        logits (`torch.FloatTensor` of shape `(batch_size, sequence_length, vocab_size)`, *optional*, returned unless `skip_logits=True`):
            Scores of the next token before the softmax; its log probabilities where several softmaxes are mixed.
        state (`ModelState`, *optional*, returned when `use_cache=True`):
            What the model knows after the last real token of every row, to go on from.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, returned when `output_hidden_states=True`):
            The embedded input, then the output of every layer before dropout, each
            `(batch_size, sequence_length, size)`.
        cross_entropy (`torch.FloatTensor` of shape `()`, *optional*, returned with the loss):
            The loss without the penalties.
    """  # noqa: E501

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    state: ModelState | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    cross_entropy: torch.FloatTensor | None = None


class RecurrentPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation.

    Attributes:
        auto_class_name: the Auto class that a checkpoint of this class is loaded with.
        pipelines: further tasks of `pipeline`: by name the class, and the Auto class of its model.
        induces_trees: whether there is a `parse` that gives trees.
    """

    auto_class_name: str | None = None
    pipelines: dict[str, tuple[type, str]] = {}
    induces_trees = False
    config: RecurrentConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _input_embed_layer = "embeddings"
    # There is no graph over time whose memory recomputing parts of it could save.
    supports_gradient_checkpointing = False
    # Tells `generate` that the state cannot be rolled back.
    _is_stateful = True

    def save_pretrained(
        self,
        save_directory: str | os.PathLike,
        is_main_process: bool = True,
        state_dict: dict[str, torch.Tensor] | None = None,
        push_to_hub: bool = False,
        **options,
    ) -> None:
        """As in Transformers, with the code of the model beside its weights, so that they load without this package.

        With `push_to_hub` the folder's name in the user's namespace is the repository, unless `repo_id` names one.
        """
        hub_options = {name: options.pop(name) for name in HUB_OPTIONS if name in options} if push_to_hub else {}
        super().save_pretrained(save_directory, is_main_process, state_dict, **options)
        if is_main_process and Path(save_directory, CONFIG_NAME).is_file():  # an adapter is saved without
            write_code(type(self), save_directory)
        if push_to_hub and is_main_process:
            self.push_to_hub(hub_options.pop("repo_id", Path(save_directory).name), **hub_options)

    @property
    def parse_layer(self) -> int | None:
        """The layer, counted from 0, whose distances make the trees; `None` where there is no choice of one."""
        return self.config.parse_layer

    def set_implementation(self, implementation: str) -> None:
        """Chooses how the model is computed. What it computes stays the same, up to rounding.

        Args:
            implementation: `"auto"`, the fastest way that fits each input; `"reference"`, the equations as they are
                written, in PyTorch's own functions and differentiated by autograd; `"scan"`, the same with the loop
                over time as one operator, for export; or a fast path of the recurrence (`"fused"`, `"native"`,
                `"triton"`), while modules that have none of this name are at `"auto"`.

        Raises:
            ValueError: if no module of this model can be computed so.
        """
        modules = [module for module in self.modules() if hasattr(module, "implementations")]
        names = chain.from_iterable(module.implementations for module in modules)
        known = dict.fromkeys(["auto", "reference", *names])
        if implementation not in known:
            raise ValueError(f"implementation must be one of {', '.join(known)}, not {implementation!r}")
        for module in modules:
            module.implementation = implementation if implementation in module.implementations else "auto"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -self.config.initializer_range, self.config.initializer_range)
        elif module is self.get_output_embeddings():
            init.uniform_(module.weight, -self.config.initializer_range, self.config.initializer_range)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            bound = module.in_features**-0.5
            init.uniform_(module.weight, -bound, bound)
            if module.bias is not None:
                init.uniform_(module.bias, -bound, bound)


class RecurrentModel(RecurrentPreTrainedModel):
    """What models without a head share: `self.embeddings`, the checks of the input, and the state to begin with.

    A subclass computes `initial_state(batch_size)`, the state before the first token, on the default device.

    Attributes:
        further_arguments: those of `forward` that stand in no signature of a base class.
    """

    auto_class_name = "AutoModel"
    further_arguments: tuple[str, ...] = ()
    embeddings: nn.Embedding

    def further_options(self, arguments: dict) -> dict:
        """Those of the `further_arguments` that are given; a `ValueError` for what the model does not know.

        What is `None` counts as not given, and so does an `output_attentions` that is `False`: tools that know nothing
        of the model pass these.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        if "output_attentions" not in self.further_arguments and not given.get("output_attentions", True):
            del given["output_attentions"]
        unknown = [name for name in given if name not in self.further_arguments]
        if unknown:
            raise ValueError(
                f"{type(self).__name__} takes no argument {', '.join(unknown)}: it has neither positions nor "
                "attention, and `state` says what came before"
            )
        return given

    def initial_state(self, batch_size: int) -> ModelState:
        raise NotImplementedError

    def check_inputs(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> None:
        """Raises a `ValueError` unless exactly one input is given, of the right shape, inside the vocabulary."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if input_ids is not None:
            if input_ids.dim() != 2:
                raise ValueError(f"input_ids must be [batch_size, sequence_length], not {list(input_ids.shape)}")
            check_vocabulary("input_ids", input_ids, self.embeddings.weight.shape[0])
        elif inputs_embeds.dim() != 3 or inputs_embeds.shape[-1] != self.embeddings.weight.shape[1]:
            raise ValueError(
                f"inputs_embeds must be [batch_size, sequence_length, {self.embeddings.weight.shape[1]}], "
                f"not {list(inputs_embeds.shape)}"
            )
        if (input_ids if inputs_embeds is None else inputs_embeds).shape[1] == 0:
            raise ValueError("the input is empty: a sequence needs at least one token")

    @staticmethod
    def time_first_mask(
        attention_mask: torch.Tensor | None, batch_size: int, length: int, device: torch.device
    ) -> torch.Tensor | None:
        """The mask as `[T, B]` booleans on that device; a `ValueError` where it has not the shape of the input."""
        if attention_mask is None:
            return None
        if list(attention_mask.shape) != [batch_size, length]:
            raise ValueError(
                f"attention_mask must have the shape of the input, {[batch_size, length]}, "
                f"not {list(attention_mask.shape)}"
            )
        return attention_mask.to(device, torch.bool).t()

    def check_state(self, state: ModelState | None, batch_size: int, device: torch.device) -> ModelState:
        """The given state on the input's device, the initial one for `None`; a `ValueError` if it cannot fit."""
        initial = self.initial_state(batch_size)
        state = initial if state is None else state
        if state.shapes != initial.shapes:
            raise ValueError(
                f"the state does not fit this model and batch: expected tensors of shapes {initial.shapes}, "
                f"got {state.shapes}"
            )
        return state.to(device)


class RecurrentForCausalLM(RecurrentPreTrainedModel, RecurrentGenerationMixin):
    """The head that predicts the next token, its loss, and what `generate` needs, around a base model.

    `generate(input_ids, state=state)` reads every token of `input_ids` from that state on. Give it only those that the
    state has not seen: with the whole sequence its beginning would be read twice.

    A subclass names its `model_class` (whose output has the fields of `RecurrentModelOutput`), and its `output_class`,
    a `RecurrentCausalLMOutput` with the further fields of the base model's output that should be passed on.
    """

    auto_class_name = "AutoModelForCausalLM"
    output_class: type[RecurrentCausalLMOutput] = RecurrentCausalLMOutput
    # The `loss_function` until a user sets another one.
    _loss_function = staticmethod(next_token_loss)
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}

    model_class: type[RecurrentModel]

    def __init__(self, config: RecurrentConfig):
        super().__init__(config)
        self.model = self.model_class(config)
        is_mixture = config.num_softmaxes > 1
        self.softmax_mixture = SoftmaxMixture(config.output_size, config) if is_mixture else None
        self.lm_head = Linear(config.embedding_size if is_mixture else config.output_size, config.vocab_size)
        self.post_init()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # Tells tools that labels are shifted here, and that text can be generated: `Trainer`, when it smooths labels,
        # and pipelines look for the name of the class among these, and not for what is registered with Auto classes.
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[cls.__name__] = cls.__name__

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head = new_embeddings

    def logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """What the head makes of `last_hidden_state`, `(batch_size, sequence_length, vocab_size)`.

        Up to a constant for each position these are log probabilities; where softmaxes are mixed they are these.
        """
        if self.softmax_mixture is None:
            return self.lm_head(hidden_states)
        return self.softmax_mixture(hidden_states, self.lm_head)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        state: ModelState | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: int | torch.Tensor | None = None,
        skip_logits: bool = False,
        **kwargs,
    ) -> RecurrentCausalLMOutput | tuple:
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, exactly one of this and `inputs_embeds`.
            attention_mask: `(batch_size, sequence_length)`, 1 for real tokens and 0 for padding on either side, which
                leaves the state as it is.
            inputs_embeds: `(batch_size, sequence_length, embedding_size)`; no whole words are dropped from it.
            labels: `(batch_size, sequence_length)`, usually `input_ids` itself: they are shifted here. -100 is
                ignored, and so is what follows padding.
            state: where to go on from; the initial state when not given.
            use_cache: whether to return the state; `config.use_cache` when not given.
            output_hidden_states: whether to return the output of every layer.
            logits_to_keep: compute the logits of the last that many positions only (0: of all).
            num_items_in_batch: divide the summed loss by this instead of the number of labels here (`Trainer` gives it
                when it accumulates gradients).
            skip_logits: compute the loss without returning logits, or ever holding them all: for training loops, less
                memory and time.
            shift_labels: instead of `labels`, labels that are shifted already: entry `t` is the token that should
                follow token `t`. For streams of text, where the target of a chunk's last token is the next chunk's
                first.
            kwargs: further arguments of the model without the head, and `return_dict`: whether to return the
                `output_class` (default) or a tuple of what is not `None`.

        The cross-entropy is `loss_function`'s, which can be set as in any model of Transformers; it is called with
        both the `labels` and the `shift_labels` made of them.

        Raises:
            ValueError: if the inputs are missing, empty, outside the vocabulary, or do not fit together, or an
                argument is unknown.
        """
        # Not in the signature, because `Trainer` evaluates only batches that have every argument named "label".
        shift_labels = kwargs.pop("shift_labels", None)
        if skip_logits and labels is None and shift_labels is None:
            raise ValueError("skip_logits leaves only the loss, which needs labels or shift_labels")
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            state=state,
            use_cache=use_cache,
            output_hidden_states=output_hidden_states,
            return_dict=True,
            **kwargs,
        )
        # `slice_logits_to_keep` of Transformers does this, but not in the oldest version that is supported.
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        hidden_states = outputs.last_hidden_state[:, kept]
        # Without logits the weight of the head is read, and only our own loss can be computed.
        reads_weight = skip_logits and is_plain(self.lm_head) and self.loss_function is next_token_loss
        logits = None if reads_weight else self.logits(hidden_states)
        fields = {name: outputs[name] for name in outputs if name in self.output_class.__dataclass_fields__}
        if labels is not None or shift_labels is not None:
            targets = next_token_targets(labels, shift_labels, attention_mask, hidden_states.shape[:2])
            if reads_weight:
                inputs, log_priors = hidden_states, None
                if self.softmax_mixture is not None:
                    inputs, log_priors = self.softmax_mixture.components(hidden_states)
                cross_entropy = projected_next_token_loss(
                    inputs, self.lm_head.weight, self.lm_head.bias, targets, num_items_in_batch, log_priors
                )
            else:
                cross_entropy = self.loss_function(
                    logits=logits,
                    labels=labels,
                    vocab_size=logits.shape[-1],
                    num_items_in_batch=num_items_in_batch,
                    shift_labels=targets,
                )
            share = 1.0
            if num_items_in_batch is not None:
                share = (targets != IGNORED_LABEL).sum() / num_items_in_batch
            penalties = {name: penalty * share for name, penalty in self.penalties(outputs, attention_mask).items()}
            loss = sum(penalties.values(), start=cross_entropy)
            fields |= {"loss": loss, "cross_entropy": cross_entropy, **penalties}
        return self.output_class(logits=None if skip_logits else logits, **fields)

    def penalties(self, outputs: RecurrentModelOutput, attention_mask: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """What the loss has beside the cross-entropy, by the field of the output that shows it; nothing by default.

        Args:
            outputs: those of the base model.
            attention_mask: `(batch_size, sequence_length)`, 0 at padding.
        """
        return {}
