"""Features of other tools with our models; docs/ecosystem.md shows the tested features."""

import copy
from typing import NamedTuple

import pytest
import torch
from transformers import GenerationConfig, Trainer, WatermarkingConfig

from onlstm_hf import build_subword_tokenizer, build_word_tokenizer
from tests.helpers.requirements import library
from tests.helpers.training_runs import trainer_arguments

TEXT = "the old cat saw a dog and the bird sang on a mat"


class Feature(NamedTuple):
    """A feature of a tool with its options, or the message of its refusal."""

    name: str
    options: dict
    refusal: str | None = None


STATEFUL = "assisted generation is not supported with stateful models"
FROM_HUB = "requires `trust_remote_code=True`"

GENERATION = [
    Feature("greedy search", {"do_sample": False}),
    Feature("sampling, top-k, top-p, min-p, typical", {"do_sample": True, "top_k": 5, "top_p": 0.9, "typical_p": 0.9}),
    Feature("beam search", {"num_beams": 3, "num_return_sequences": 3}),
    Feature("beam search with sampling", {"num_beams": 3, "do_sample": True}),
    Feature("repetition penalty, forbidden words and n-grams", {"repetition_penalty": 1.2, "bad_words_ids": [[3]]}),
    Feature("watermark", {"do_sample": True, "watermarking_config": WatermarkingConfig()}),
    Feature("time limit", {"max_time": 60.0}),
    Feature("no state kept", {"use_cache": False}),
    Feature("`cache_implementation`", {"cache_implementation": "static"}),
    Feature("scores, `compute_transition_scores`", {"output_scores": True, "return_dict_in_generate": True}),
    Feature("assisted generation", {"assistant_model": True}, STATEFUL),
    Feature("prompt lookup", {"prompt_lookup_num_tokens": 2}, STATEFUL),
    Feature("chunked prefill", {"prefill_chunk_size": 2}, "Cannot use prefill chunking without a cache"),
    Feature("contrastive search", {"penalty_alpha": 0.6, "top_k": 3}, f"Contrastive Search {FROM_HUB}"),
    Feature("DoLa", {"dola_layers": "low"}, f"Dola Generation {FROM_HUB}"),
    Feature(
        "diverse beams",
        {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
        f"Group Beam Search {FROM_HUB}",
    ),
    Feature("words that must come", {"num_beams": 3, "force_words_ids": [[3]]}, f"Constrained Beam Search {FROM_HUB}"),
    Feature("stop strings, with a word tokenizer", {"stop_strings": ["cat"]}, "substring not found"),
    Feature("classifier-free guidance", {"guidance_scale": 1.5}, "attention_mask must have the shape of the input"),
]
TRAINER = [
    Feature("bfloat16", {"bf16": True}),
    Feature("NEFTune", {"neftune_noise_alpha": 5.0}),
    Feature("batches of similar lengths", {"train_sampling_strategy": "group_by_length"}),
    Feature("the best checkpoint at the end", {"load_best_model_at_end": True, "eval_strategy": "steps"}),
    Feature("Trackio", {"report_to": ["trackio"]}),
    Feature("gradient checkpointing", {"gradient_checkpointing": True}, "checkpointing"),
]
# Layers with adapters.
MAPS = ["input_projection", "recurrent_projection"]
PEFT = [
    Feature("DoRA", {"type": "LoraConfig", "r": 2, "use_dora": True, "init_lora_weights": False}),
    Feature(
        "AdaLoRA", {"type": "AdaLoraConfig", "init_r": 2, "target_r": 1, "total_step": 9, "init_lora_weights": False}
    ),
    Feature("LoHa", {"type": "LoHaConfig", "r": 2, "init_weights": False}),
    Feature("LoKr", {"type": "LoKrConfig", "r": 2, "init_weights": False}),
    Feature("IA3", {"type": "IA3Config", "feedforward_modules": [], "init_ia3_weights": False}),
    Feature("OFT", {"type": "OFTConfig", "r": 0, "oft_block_size": 4, "init_weights": False}),
    Feature("HRA", {"type": "HRAConfig", "r": 2, "init_weights": False}),
    Feature("FourierFT", {"type": "FourierFTConfig", "n_frequency": 5, "init_weights": False}),
]


def each(features: list[Feature]):
    return pytest.mark.parametrize("feature", features, ids=[feature.name for feature in features])


@pytest.fixture(scope="module")
def tokenizer():
    return build_word_tokenizer([TEXT])


@pytest.fixture
def model(kind, tokenizer):
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    special = {name: getattr(tokenizer, name) for name in names}
    return kind.make(**kind.no_dropout, **special, vocab_size=len(tokenizer), tie_word_embeddings=False)


def check(feature: Feature, use) -> None:
    """Checks that `use()` works or fails with the message of the refusal."""
    if feature.refusal is None:
        use()
        return
    with pytest.raises((ValueError, ImportError, RuntimeError, NotImplementedError)) as caught:
        use()
    assert feature.refusal in str(caught.value)


@each(GENERATION)
def test_generate(feature, model, tokenizer):
    ids = torch.randint(2, len(tokenizer), (2, 4))
    options = dict(feature.options)
    if "assistant_model" in options:
        options["assistant_model"] = copy.deepcopy(model)
    if "stop_strings" in options:
        options["tokenizer"] = tokenizer

    def use():
        model.generation_config = GenerationConfig.from_model_config(model.config)
        output = model.generate(ids, max_new_tokens=4, **options)
        if feature.options.get("return_dict_in_generate"):
            scores = model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)
            assert scores.shape == output.sequences[:, 4:].shape
        else:
            assert output.shape[0] == 2 * options.get("num_return_sequences", 1) and 4 < output.shape[1] <= 8
            assert torch.equal(output[:: len(output) // 2, :4], ids)
        if "cache_implementation" in options:
            assert torch.equal(output, model.generate(ids, max_new_tokens=4))

    check(feature, use)


def test_generation_ends_at_a_stop_string_with_a_subword_tokenizer(kind):
    tokenizer = build_subword_tokenizer([TEXT, "abcdef"], vocab_size=60)  # Transformers encodes these letters
    model = kind.make(vocab_size=len(tokenizer))
    ids = tokenizer(["the old cat"], return_tensors="pt").input_ids
    unstopped = tokenizer.decode(model.generate(ids, max_new_tokens=9, do_sample=False)[0, ids.shape[1] :])
    stop = unstopped[: len(unstopped) // 2]
    output = model.generate(ids, max_new_tokens=9, do_sample=False, stop_strings=[stop], tokenizer=tokenizer)
    assert stop in (text := tokenizer.decode(output[0, ids.shape[1] :])) and len(text) < len(unstopped)


@each(TRAINER)
def test_trainer(feature, model, tokenizer, tmp_path, monkeypatch):
    if "trackio" in feature.options.get("report_to", ()):
        library("trackio")
        monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(2, len(tokenizer), (6, 5))]
    steps = {"max_steps": 2, "save_steps": 2, "logging_steps": 1}
    before = copy.deepcopy(model.state_dict())

    def use():
        arguments = trainer_arguments(tmp_path, **steps, **feature.options)
        trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert len(losses) == 2 and all(loss > 0 for loss in losses)
        assert not torch.equal(model.state_dict()["lm_head.weight"], before["lm_head.weight"])

    check(feature, use)


@each(PEFT)
def test_adapters_equal_their_merged_weights_and_are_trained(feature, model):
    peft = library("peft")
    options = dict(feature.options)
    config = getattr(peft, options.pop("type"))(target_modules=MAPS, **options)
    ids = torch.randint(2, 8, (2, 6))
    with torch.no_grad():
        plain = model(ids).logits
    adapted = peft.get_peft_model(model, config)
    adapted(input_ids=ids, labels=ids).loss.backward()
    for name, parameter in adapted.named_parameters():
        assert not parameter.requires_grad or parameter.grad.abs().sum() > 0, name
    with torch.no_grad():
        changed = adapted.eval()(input_ids=ids).logits
        assert not torch.allclose(changed, plain, atol=1e-3)
        torch.testing.assert_close(adapted.merge_and_unload()(ids).logits, changed, rtol=1e-4, atol=1e-4)
