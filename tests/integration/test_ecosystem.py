"""The table of docs/ecosystem.md: what tools do with the models, each row backed by a test here or elsewhere."""

import ast
import copy
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, Trainer, TrainingArguments, WatermarkingConfig

from onlstm_hf import build_word_tokenizer
from tests.helpers.requirements import library
from tests.helpers.tiny_models import MODEL_TYPES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "ecosystem.md"
TEXT = "the old cat saw a dog and the bird sang on a mat"


@dataclass(frozen=True)
class Feature:
    """A row.

    Attributes:
        name: of the feature.
        options: what the tool is called with, where it is tested here.
        refusal: how the message of the refusal begins or what it says, where the tool does not work.
        tested_by: otherwise the test, `file::function` below `tests/`.
        note: of something that works, in a few words.
    """

    name: str
    options: dict = field(default_factory=dict)
    refusal: str | None = None
    tested_by: str | None = None
    note: str = ""

    def row(self, tool: str) -> str:
        found = "works" if self.refusal is None else f"refused: “{self.refusal}”"
        return f"| {tool} | {self.name} | {found}{'; ' * bool(self.note)}{self.note} |"


STATEFUL = "assisted generation is not supported with stateful models"
FROM_HUB = "requires `trust_remote_code=True`"
SHARED = "integration/test_other_tools.py::"
OURS = "integration/test_transformers_integration.py::"
MODULES = "models/test_modules_of_other_tools.py::"
ATTENTION = "`num_attention_heads`"

GENERATION = [
    Feature("greedy search", {"do_sample": False}),
    Feature("sampling, top-k, top-p, min-p, typical", {"do_sample": True, "top_k": 5, "top_p": 0.9, "typical_p": 0.9}),
    Feature("beam search", {"num_beams": 3, "num_return_sequences": 3}),
    Feature("beam search with sampling", {"num_beams": 3, "do_sample": True}),
    Feature("repetition penalty, forbidden words and n-grams", {"repetition_penalty": 1.2, "bad_words_ids": [[3]]}),
    Feature("watermark", {"do_sample": True, "watermarking_config": WatermarkingConfig()}),
    Feature("time limit", {"max_time": 60.0}),
    Feature("no state kept", {"use_cache": False}),
    Feature("`cache_implementation`", {"cache_implementation": "static"}, note="there is no cache to choose"),
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
    Feature(
        "going on from a state", tested_by="models/test_generation.py::test_generation_goes_on_from_a_given_state"
    ),
    Feature("a streamer", tested_by="models/test_generation.py::test_a_streamer_gets_the_prompt_and_then_every_token"),
    Feature(
        "embeddings as the prompt",
        tested_by="models/test_generation.py::test_embeddings_in_the_place_of_ids_give_the_same_continuation",
    ),
]
TRAINER = [
    Feature("training, checkpoints", tested_by=f"{OURS}test_trainer_lowers_the_loss_and_its_checkpoints_load"),
    Feature(
        "gradient accumulation",
        tested_by=f"{OURS}test_trainer_accumulates_gradients_to_those_of_the_larger_batch",
    ),
    Feature("`predict`", tested_by=f"{OURS}test_trainer_predicts_logits"),
    Feature(
        "label smoothing",
        tested_by=f"{OURS}test_trainer_predicts_the_next_token_with_and_without_label_smoothing",
        note="where this package is imported",
    ),
    Feature("bfloat16", {"bf16": True}),
    Feature("NEFTune", {"neftune_noise_alpha": 5.0}),
    Feature("batches of similar lengths", {"train_sampling_strategy": "group_by_length"}),
    Feature("the best checkpoint at the end", {"load_best_model_at_end": True, "eval_strategy": "steps"}),
    Feature("Trackio", {"report_to": ["trackio"]}),
    Feature("gradient checkpointing", {"gradient_checkpointing": True}, "does not support activation checkpointing"),
]
# The layers that adapters are put on.
MAPS = ["input_projection", "recurrent_projection"]
PEFT = [
    Feature("LoRA", tested_by=f"{SHARED}test_lora_changes_the_model_as_the_merged_weights_do"),
    Feature(
        "merging LoRA",
        tested_by=f"{SHARED}test_lora_merges_into_tied_weights_only_where_they_are_untied_before",
        note="not on tied embeddings or heads: see [models.md](models.md#adapters-on-tied-weights)",
    ),
    Feature("DoRA", {"type": "LoraConfig", "r": 2, "use_dora": True, "init_lora_weights": False}),
    Feature(
        "AdaLoRA",
        {"type": "AdaLoraConfig", "init_r": 2, "target_r": 1, "total_step": 9, "init_lora_weights": False},
    ),
    Feature("LoHa", {"type": "LoHaConfig", "r": 2, "init_weights": False}),
    Feature("LoKr", {"type": "LoKrConfig", "r": 2, "init_weights": False}),
    Feature("IA3", {"type": "IA3Config", "feedforward_modules": [], "init_ia3_weights": False}),
    Feature("OFT", {"type": "OFTConfig", "r": 0, "oft_block_size": 4, "init_weights": False}),
    Feature("HRA", {"type": "HRAConfig", "r": 2, "init_weights": False}),
    Feature("FourierFT", {"type": "FourierFTConfig", "n_frequency": 5, "init_weights": False}),
    Feature(
        "prompt tuning, p-tuning",
        tested_by=f"{SHARED}test_a_learned_prompt_is_read_once_before_the_text",
        note="with `token_dim=config.embedding_size, num_attention_heads=1`",
    ),
    Feature(
        "prefix tuning, adaption prompts",
        refusal=f"Please specify {ATTENTION} in `peft_config`",
        tested_by=f"{SHARED}test_methods_of_peft_that_need_attention_are_refused",
    ),
]
ELSEWHERE = {
    "pipeline": [
        Feature("text generation", tested_by=f"{OURS}test_text_generation_pipeline"),
        Feature(
            "feature extraction",
            tested_by=f"{OURS}test_feature_extraction_pipeline_gives_in_batches_what_it_gives_alone",
        ),
        Feature(
            "text classification, of pairs",
            tested_by="integration/test_text_classification.py::test_many_pairs_give_the_probability_of_every_label",
        ),
        Feature(
            "constituency parsing",
            tested_by="parsing/test_constituency_parsing.py::test_every_kind_of_input_gives_the_same",
            note="this package's own",
        ),
    ],
    "torch.compile": [
        Feature("training", tested_by=f"{OURS}test_its_training_compiles_with_inductor_without_graph_breaks"),
        Feature("evaluation", tested_by=f"{OURS}test_the_model_compiles_with_inductor_without_graph_breaks"),
    ],
    "torch.export": [
        Feature("a whole text", tested_by=f"{SHARED}test_an_exported_forward_pass_computes_the_same"),
        Feature(
            "a step from a state",
            tested_by="models/test_recurrent_state.py::test_a_step_that_goes_on_from_a_state_is_exported_with_it",
        ),
    ],
    "ONNX Runtime": [
        Feature("language models", tested_by="hub/test_onnx.py::test_a_text_is_read_and_gone_on_with"),
        Feature("classifiers of sequences", tested_by="hub/test_onnx.py::test_sequences_are_classified"),
        Feature("classifiers of pairs", tested_by="hub/test_onnx.py::test_pairs_are_classified"),
        Feature("trees without PyTorch", tested_by="hub/test_onnx.py::test_the_page_parses_without_pytorch"),
    ],
    "Accelerate": [
        Feature("`device_map`", tested_by=f"{OURS}test_device_map"),
        Feature("`cpu_offload`, `disk_offload`", tested_by=f"{MODULES}test_offloaded_weights_compute_the_same"),
    ],
    "hooks": [
        Feature(
            "of every affine map",
            tested_by=f"{MODULES}test_a_hook_may_change_what_any_projection_gives",
        ),
        Feature(
            "gradients of `hidden_states`",
            tested_by=f"{MODULES}test_hidden_states_get_the_gradient_of_what_reads_them",
        ),
    ],
    "quantisers": [
        Feature(
            "torchao, bitsandbytes, `quantize_dynamic`",
            tested_by=f"{MODULES}test_quantised_weights_are_computed_with",
            note="not tested with a PRPN",
        ),
    ],
    "lm-evaluation-harness": [
        Feature(
            "minimal pairs",
            tested_by=f"{SHARED}test_lm_evaluation_harness_finds_our_log_probabilities_and_accuracy",
        ),
        Feature(
            "pairs that unknown words make identical",
            tested_by=f"{SHARED}test_pairs_that_unknown_words_make_identical_are_ties_and_not_correct",
            note="with the task files of this repository",
        ),
    ],
    "minicons": [Feature("scores of tokens", tested_by=f"{SHARED}test_minicons_finds_our_log_probabilities")],
    "Datasets": [Feature("`map` to trees", tested_by=f"{SHARED}test_a_dataset_is_mapped_to_trees")],
    "Evaluate": [
        Feature("`load` of the metrics here", tested_by="eval/test_eval_metrics.py::test_examples_of_the_card_run"),
        Feature(
            "`evaluator`, on pairs",
            tested_by="integration/test_text_classification.py::test_evaluate_measures_accuracy_on_a_dataset_of_pairs",
        ),
    ],
}
TABLE = {"generate": GENERATION, "Trainer": TRAINER, "PEFT": PEFT, **ELSEWHERE}
HEADER = ["| tool | feature | |", "| --- | --- | --- |"]


def here(features: list[Feature]):
    """One test a feature that has no test elsewhere."""
    rows = [feature for feature in features if feature.tested_by is None]
    return pytest.mark.parametrize("feature", rows, ids=[feature.name for feature in rows])


@pytest.fixture(params=list(MODEL_TYPES))
def kind(request):
    return MODEL_TYPES[request.param]


@pytest.fixture(scope="module")
def tokenizer():
    return build_word_tokenizer([TEXT])


@pytest.fixture
def model(kind, tokenizer):
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    special = {name: getattr(tokenizer, name) for name in names}
    return kind.make(**kind.no_dropout, **special, vocab_size=len(tokenizer), tie_word_embeddings=False)


def check(feature: Feature, use) -> None:
    """`use()` works, or is refused with the message that the table shows."""
    if feature.refusal is None:
        use()
        return
    with pytest.raises((ValueError, ImportError, RuntimeError, NotImplementedError)) as caught:
        use()
    assert feature.refusal in str(caught.value)


@here(GENERATION)
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


@here(TRAINER)
def test_trainer(feature, model, tokenizer, tmp_path, monkeypatch):
    if "trackio" in feature.options.get("report_to", ()):
        library("trackio")
        monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(2, len(tokenizer), (6, 5))]
    options = {"max_steps": 2, "save_steps": 2, "logging_steps": 1, "use_cpu": True, "report_to": []}
    before = copy.deepcopy(model.state_dict())

    def use():
        arguments = TrainingArguments(str(tmp_path), disable_tqdm=True, **{**options, **feature.options})
        trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert len(losses) == 2 and all(loss > 0 for loss in losses)
        assert not torch.equal(model.state_dict()["lm_head.weight"], before["lm_head.weight"])

    check(feature, use)


@here(PEFT)
def test_adapters_change_the_model_as_the_merged_weights_do_and_are_all_trained(feature, model):
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


@pytest.mark.parametrize("feature", [f for f in chain(*TABLE.values()) if f.tested_by], ids=lambda f: f.name)
def test_the_test_that_a_row_stands_for_exists(feature):
    file, _, function = feature.tested_by.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    assert function in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def test_the_page_shows_the_table():
    rows = [feature.row(tool) for tool, features in TABLE.items() for feature in features]
    shown = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert shown == [*HEADER, *rows], "the page must have these lines:\n" + "\n".join([*HEADER, *rows])
