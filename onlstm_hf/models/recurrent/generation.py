"""What `generate` of Transformers needs of a model that carries a state."""

import torch
from transformers import GenerationMixin


class RecurrentGenerationMixin(GenerationMixin):
    """`generate` with the `state` in the place of a cache of keys and values.

    Transformers knows a model that generates by `GenerationMixin` in the name of the class that has these methods. Of
    remote code that has them elsewhere it makes a class of its own, which can be neither pickled nor saved.
    """

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    # `generate` looks for the name `inputs_embeds` here to know that it may be given.
    def prepare_inputs_for_generation(self, input_ids, inputs_embeds=None, **kwargs):
        """The inputs of one call of `generate`: the tokens that the state has not seen, and their part of the mask."""
        method = vars(self).get("prepare_inputs_for_generation")
        if getattr(method, "__self__", self) is not self:
            # PEFT's learned prompts replace this method and call it. As they know no cache but that of attention, they
            # put the prompt before the tokens of every call, so that each must read all of the text.
            kwargs |= {"state": None, "next_sequence_length": None}
        inputs = super().prepare_inputs_for_generation(input_ids, inputs_embeds=inputs_embeds, **kwargs)
        tokens = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
        if inputs.get("attention_mask") is not None:
            inputs["attention_mask"] = inputs["attention_mask"][:, -tokens.shape[1] :]
        return inputs

    def _maybe_initialize_input_ids_for_generation(self, inputs, bos_token_id, model_kwargs):
        """As in Transformers, where no inputs are given; and a prompt without tokens is `bos_token_id`, too."""
        if inputs is not None and inputs.shape[1] == 0 and not {"inputs_embeds", "state"} & model_kwargs.keys():
            model_kwargs["attention_mask"] = torch.ones(len(inputs), 1, dtype=torch.long, device=inputs.device)
            inputs = None
        return super()._maybe_initialize_input_ids_for_generation(inputs, bos_token_id, model_kwargs)

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs, *args, **kwargs):
        # From 5.24 on Transformers hands on by itself only what is called `cache`.
        if "state" in outputs:
            model_kwargs["state"] = outputs.state
        return super()._update_model_kwargs_for_generation(outputs, model_kwargs, *args, **kwargs)

    def _expand_inputs_for_generation(self, expand_size=1, is_encoder_decoder=False, input_ids=None, **model_kwargs):
        if expand_size > 1 and model_kwargs.get("state") is not None:
            model_kwargs["state"] = model_kwargs["state"].repeat_interleave(expand_size)
        return super()._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **model_kwargs)
