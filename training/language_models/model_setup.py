"""Tokenizer and language model of a recipe."""

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

import onlstm_hf
from onlstm_hf.models.configuration_onlstm import AWDLSTMConfig
from onlstm_hf.utils.tokenizer_check import check_tokenizer, tokenizer_fingerprint
from training.language_models.recipe import DataArguments, LanguageModelRecipe, ModelArguments
from training.language_models.text_batches import check_files, load_texts
from training.language_models.validation import store_preprocessing
from training.loop.checkpointing import reported_damage
from training.loop.model_setup import changed_config, run_model_code, trained_class

# Fields that apply only when a tokenizer is built; `subwords` is another one.
BUILT_TOKENIZER_FIELDS = ("vocab_size", "min_count", "lowercase", "digits_to_n", "drop_punctuation", "split")

logger = logging.get_logger(__name__)


def check_recipe(recipe: LanguageModelRecipe) -> PreTrainedConfig:
    """Checks files and model fields. Returns the configuration of the model without the vocabulary size."""
    check_files(recipe.data)
    if recipe.model.model_code is not None:
        run_model_code(recipe.model.model_code)
    config = build_config(recipe.model)
    store_preprocessing(recipe.data, config)
    return config


def build_tokenizer(data: DataArguments, init_from: str | None) -> PreTrainedTokenizerBase:
    """Loads the recipe's tokenizer or that of the `init_from` checkpoint, or builds one from the training text."""
    name = data.tokenizer or init_from
    if name is not None:
        with reported_damage(f"the tokenizer {name}"):
            tokenizer = AutoTokenizer.from_pretrained(name)
        if tokenizer.eos_token_id is None:
            raise ValueError(f"the tokenizer {name} has no eos_token, which must end every line of the text")
        fields = (*BUILT_TOKENIZER_FIELDS, "subwords")
        if ignored := [field for field in fields if getattr(data, field) != getattr(DataArguments, field)]:
            logger.warning(f"the tokenizer {name} is used as it is: {', '.join(ignored)} of the recipe change nothing")
        return tokenizer
    options = {field: value for field in BUILT_TOKENIZER_FIELDS if (value := getattr(data, field)) is not None}
    options |= {"text_column": data.text_column, "padding_side": "left"}  # text generation needs the left side
    texts = load_texts(data, "train")
    if data.subwords is not None:
        return onlstm_hf.build_subword_tokenizer(texts, parts=data.subwords, **options)
    return onlstm_hf.build_word_tokenizer(texts, **options)


def build_model(arguments: ModelArguments, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Returns a new model for the tokenizer's vocabulary, or the `init_from` checkpoint, in float32."""
    num_ids = max(tokenizer.get_vocab().values()) + 1
    if arguments.init_from is None:
        special_ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        model = AutoModelForCausalLM.from_config(build_config(arguments, vocab_size=num_ids, **special_ids))
    else:
        model = _load_checkpoint(arguments.init_from, build_config(arguments))
        if model.config.eos_token_id != tokenizer.eos_token_id:
            raise ValueError(f"the tokenizer and the checkpoint {arguments.init_from} have different ids of <eos>")
    check_tokenizer(tokenizer, model.config)
    model.config.tokenizer_fingerprint = tokenizer_fingerprint(tokenizer)
    return model


def build_config(arguments: ModelArguments, **vocabulary: int | None) -> PreTrainedConfig:
    """Returns the configuration of a new model or of the checkpoint, with the recipe's fields."""
    if arguments.init_from is None:
        trained_class(arguments.model_type, MODEL_FOR_CAUSAL_LM_MAPPING)
        base, fields = AutoConfig.for_model(arguments.model_type), vocabulary
    else:
        with reported_damage(f"the checkpoint {arguments.init_from}"):
            base = AutoConfig.from_pretrained(arguments.init_from)
        trained_class(base.model_type, MODEL_FOR_CAUSAL_LM_MAPPING)
        fields = base.to_dict()
    return changed_config(base, fields, arguments.model)


def _load_checkpoint(folder: str, config: PreTrainedConfig) -> PreTrainedModel:
    """Loads a checkpoint in float32 with a changed configuration of the same sizes. Its predictions stay the same."""
    with reported_damage(f"the checkpoint {folder}"):
        saved_config = AutoConfig.from_pretrained(folder)
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True
        )
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"the checkpoint {folder} lacks weights: {', '.join(missing)}")
    if not all(weight.isfinite().all() for weight in model.parameters()):
        raise ValueError(f"the weights of the checkpoint {folder} contain NaN or infinity")
    if isinstance(config, AWDLSTMConfig) and config.weight_dropout != saved_config.weight_dropout:
        scale = drop_connect_scale(saved_config.weight_dropout, config.weight_dropout)
        for layer in model.base_model.layers:
            layer.recurrent_projection.weight.data.mul_(scale)
    return model


def drop_connect_scale(before: float, after: float) -> float:
    """Returns the factor of recurrent weights that keeps predictions, where they are scaled by one minus the rate."""
    return (1 - before) / (1 - after)
