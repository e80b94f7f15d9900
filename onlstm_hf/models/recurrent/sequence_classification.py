"""Classifying single sequences: a linear map of what a model knows after the last token."""

import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration import RecurrentConfig
from .language_model import RecurrentModel, RecurrentPreTrainedModel


class ForSequenceClassification(RecurrentPreTrainedModel):
    """A linear map around `self.model`, of the encoding that it makes of each sequence.

    A subclass names its `model_class`, and hands the encodings to `classify`.
    """

    auto_class_name = "AutoModelForSequenceClassification"
    # The loss is a mean over the batch: `Trainer` divides it where it accumulates gradients.
    accepts_loss_kwargs = False
    model_class: type[RecurrentModel]

    def __init__(self, config: RecurrentConfig):
        super().__init__(config)
        self.model = self.model_class(config)
        self.score = nn.Linear(config.output_size, config.num_labels)
        self.post_init()

    def classify(
        self, encodings: torch.Tensor, labels: torch.Tensor | None, **further_outputs
    ) -> SequenceClassifierOutput:
        """The scores of encodings `(batch_size, size)`, and their loss where there are labels (see `forward`)."""
        logits = self.score(encodings)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits.float(), config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits, **further_outputs)


class RecurrentForSequenceClassification(ForSequenceClassification):
    """Classifies what a recurrent model gives after the last real token of each sequence."""

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        input_ids_pair: torch.LongTensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs,
    ) -> SequenceClassifierOutput | tuple:
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, exactly one of this and `inputs_embeds`.
            attention_mask: `(batch_size, sequence_length)`, 1 for real tokens and 0 for padding on either side;
                without it every token is taken for a real one.
            inputs_embeds: `(batch_size, sequence_length, embedding_size)`.
            token_type_ids: `(batch_size, sequence_length)`, all 0, where the tokenizer gives them.
            input_ids_pair: refused, as this model knows no pairs.
            labels: by `config.problem_type`, which is found out when it is `None`, the classes `(batch_size,)`, for
                `"multi_label_classification"` 0 or 1 of each class `(batch_size, num_labels)`, for `"regression"`
                numbers `(batch_size,)` or `(batch_size, num_labels)`.
            kwargs: further arguments of the model without the head, such as `output_hidden_states`, and `return_dict`:
                whether to return a `SequenceClassifierOutput` (default) or a tuple of what is not `None`.

        Raises:
            ValueError: if the inputs are a pair, or missing, empty, outside the vocabulary, or do not fit together.
        """
        if input_ids_pair is not None or (token_type_ids is not None and token_type_ids.any()):
            raise ValueError(
                f"{type(self).__name__} classifies single sequences, and this is a pair: the classes named "
                "ForSequencePairClassification compare two"
            )
        if input_ids is not None:
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        options = {"use_cache": False} | kwargs | {"return_dict": True}
        outputs = self.model(input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **options)
        return self.classify(
            _at_last_token(outputs.last_hidden_state, attention_mask),
            labels,
            hidden_states=outputs.hidden_states,
            attentions=outputs.get("attentions"),
        )


def _at_last_token(hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Of hidden states `[B, T, H]` those at the last real token of each row, `[B, H]`."""
    if attention_mask is None:
        return hidden_states[:, -1]
    places = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    last = (attention_mask.bool() * places).argmax(dim=1)
    return hidden_states[torch.arange(last.shape[0], device=last.device), last]
