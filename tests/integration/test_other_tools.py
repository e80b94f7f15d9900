"""Tools without knowledge of this package give the same numbers as the package."""

import json
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from eval.data.syntactic_tests import Item
from eval.evaluate_syntax import score_items
from onlstm_hf.scoring.sentences import score_sentences
from tests.helpers.requirements import library

PROJECT_ROOT = Path(__file__).resolve().parents[2]
CHECKPOINT = str(PROJECT_ROOT / "model_cards" / "onlstm-ptb-small")
SENTENCES = [
    "the company said it expects to report a loss",
    "stocks fell",
    "the banks that the fund bought have a plan",
]


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(CHECKPOINT)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(CHECKPOINT)


# lm-evaluation-harness


@pytest.mark.slow
def test_lm_evaluation_harness_has_our_log_probabilities_and_accuracy(model, tokenizer, monkeypatch):
    lm_eval = library("lm_eval")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    monkeypatch.chdir(PROJECT_ROOT)
    results = lm_eval.simple_evaluate(
        HFLM(pretrained=CHECKPOINT, device="cpu", batch_size=7),
        tasks=["subject_verb_agreement"],
        task_manager=TaskManager(include_path="eval/lm_evaluation_harness", include_defaults=False),
        bootstrap_iters=0,
    )
    samples = results["samples"]["subject_verb_agreement"]
    num_correct = 0
    for sample in samples:
        log_probabilities = [answers[0] for answers in sample["filtered_resps"]]
        pair = [sample["doc"]["sentence_good"], sample["doc"]["sentence_bad"]]
        scores = score_sentences(model, tokenizer, pair)
        assert not any(tokenizer.unk_token in score.tokens for score in scores)
        expected = [sum(score.log_probabilities[:-1]) for score in scores]  # without the end of the sentence
        assert log_probabilities == pytest.approx(expected, abs=1e-3)
        num_correct += expected[0] > expected[1]
    accuracy = results["results"]["subject_verb_agreement"]["acc,none"]
    assert accuracy == pytest.approx(num_correct / len(samples)) and 0 < accuracy < 1


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_metric_modules")
def test_pairs_with_unknown_words_are_ties_and_not_correct(model, tokenizer, tmp_path):
    lm_eval = library("lm_eval")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    pairs = [
        ("the company expects a loss", "the company expect a loss"),
        ("the company expect a loss", "the company expects a loss"),  # one pair is not correct
        ("the zorbs glimp a loss", "the zorb glimps a loss"),
        ("stocks frobnicate", "stocks frobnicates"),
    ]
    rows = [dict(zip(("sentence_good", "sentence_bad"), pair, strict=True)) for pair in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    template = PROJECT_ROOT / "eval" / "lm_evaluation_harness" / "minimal_pairs.yaml"
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(tmp_path / "pairs.jsonl")}}}
    task = {"include": str(template), "task": "unknown_words", **data}
    (tmp_path / "unknown_words.yaml").write_text(json.dumps(task))  # JSON is YAML
    results = lm_eval.simple_evaluate(
        HFLM(pretrained=model, tokenizer=tokenizer, device="cpu", batch_size=3),
        tasks=["unknown_words"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=0,
    )
    found = results["results"]["unknown_words"]
    items = [Item("", "", pair) for pair in pairs]
    expected = score_items(model, tokenizer, items, end_counts=False)
    assert found["acc,none"] == pytest.approx(expected["accuracy"]) and expected["num_correct"] == 1
    assert found["ties,none"] == pytest.approx(expected["num_ties"] / len(pairs)) and expected["num_ties"] == 2


def test_lm_evaluation_harness_begins_texts_with_the_requested_token(model, tokenizer):
    library("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    context, continuation = "The company said", " it expects a loss."
    request = Instance("loglikelihood", {}, (context, continuation), 0)
    harness = HFLM(pretrained=str(CHECKPOINT), add_bos_token=True, device="cpu", dtype="float32")
    ((found, _),) = harness.loglikelihood([request], disable_tqdm=True)
    (score,) = score_sentences(model, tokenizer, [context + continuation])
    assert found == pytest.approx(sum(score.log_probabilities[3:7]), abs=1e-3)


# minicons


def test_minicons_has_our_log_probabilities(model, tokenizer):
    scorer = library("minicons.scorer").IncrementalLMScorer(CHECKPOINT, "cpu")
    found = scorer.token_score(SENTENCES, bos_token=True, eos_token=True)
    for tokens, expected in zip(found, score_sentences(model, tokenizer, SENTENCES), strict=True):
        assert [token for token, _ in tokens] == [tokenizer.eos_token, *expected.tokens]
        assert [score for _, score in tokens[1:]] == pytest.approx(expected.log_probabilities, abs=1e-4)


# PEFT


def test_lora_equals_its_merged_weights(kind, tmp_path):
    """Tests a nonzero adapter on the embedding, the recurrence and the head."""
    peft = library("peft")
    targets = ["embeddings", "input_projection", "recurrent_projection", "lm_head"]
    options = {**kind.no_dropout, "tie_word_embeddings": False}
    config = peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False)
    model, plain = peft.get_peft_model(kind.make(**options), config).eval(), kind.make(**options)
    ids = torch.randint(12, (3, 7))
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids}
    with torch.no_grad():
        output = model(**inputs)
        assert not torch.allclose(output.logits, plain(**inputs).logits, atol=0.1)
        torch.testing.assert_close(model(**inputs, skip_logits=True).loss, output.loss)
        with model.disable_adapter():
            torch.testing.assert_close(model(**inputs).logits, plain(**inputs).logits)
        model.save_pretrained(tmp_path)
        written = model.generate(input_ids=ids, max_new_tokens=4, do_sample=False)
        merged = model.merge_and_unload()
        torch.testing.assert_close(merged(**inputs).logits, output.logits, rtol=1e-4, atol=1e-4)
        assert torch.equal(merged.generate(input_ids=ids, max_new_tokens=4, do_sample=False), written)

        plain.load_adapter(str(tmp_path))
        torch.testing.assert_close(plain(**inputs).logits, output.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["embeddings", "lm_head", "input_projection"])
def test_lora_merges_correctly_only_into_untied_weights(kind, target):
    peft = library("peft")
    ids = torch.randint(12, (3, 7))

    def logits(untie):
        """Returns the logits before and after merging the adapter."""
        model = kind.make(**kind.no_dropout)
        assert model.lm_head.weight is model.get_input_embeddings().weight
        if untie:
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
            model.config.tie_word_embeddings = False
        torch.manual_seed(0)
        config = peft.LoraConfig(r=2, target_modules=[target], init_lora_weights=False)
        model = peft.get_peft_model(model, config).eval()
        with torch.no_grad():
            return model(input_ids=ids).logits, model.merge_and_unload()(input_ids=ids).logits

    unmerged, merged = logits(untie=True)
    torch.testing.assert_close(merged, unmerged, rtol=1e-4, atol=1e-4)
    of_tied, merged = logits(untie=False)
    torch.testing.assert_close(of_tied, unmerged, rtol=1e-4, atol=1e-4)
    assert torch.allclose(merged, of_tied, rtol=1e-4, atol=1e-4) == (target == "input_projection")


# Settings that PEFT requires: the embedding size, and attention heads, which do not exist.
def prompt_options(model) -> dict:
    prompt = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 3}
    return prompt | {"token_dim": model.config.embedding_size, "num_attention_heads": 1}


@pytest.mark.parametrize("method", ["PromptTuningConfig", "PromptEncoderConfig"])
def test_a_learned_prompt_is_read_once_before_the_text(kind, method):
    peft = library("peft")
    plain, ids = kind.make(**kind.no_dropout), torch.randint(12, (3, 5))
    config = getattr(peft, method)(**prompt_options(plain))
    model = peft.get_peft_model(kind.make(**kind.no_dropout), config)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        prompt = model.get_prompt(batch_size=3)
        embedded = torch.cat([prompt, plain.get_input_embeddings()(ids)], dim=1)
        expected = plain(inputs_embeds=embedded).logits
        torch.testing.assert_close(model(**inputs).logits, expected)
        options = {"max_new_tokens": 5, "do_sample": False}
        written = plain.generate(inputs_embeds=embedded, **options)
        assert torch.equal(model.generate(**inputs, **options)[:, ids.shape[1] :], written)

    model(**inputs, labels=ids).loss.backward()
    trained = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert trained and all(name.startswith("prompt_encoder") for name in trained)


def test_peft_methods_for_attention_are_refused(kind):
    peft = library("peft")
    model = kind.make()
    adaption = peft.AdaptionPromptConfig(adapter_len=3, adapter_layers=1, task_type="CAUSAL_LM")
    with pytest.raises(ValueError, match="Unsupported model type for adaption prompt"):
        peft.get_peft_model(model, adaption)
    with pytest.raises(ValueError, match="specify `num_attention_heads`"):
        peft.get_peft_model(model, peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    prefix = peft.get_peft_model(model, peft.PrefixTuningConfig(**prompt_options(model)))
    with pytest.raises((ValueError, TypeError), match="attention_mask|past_key_values"):
        prefix(input_ids=torch.ones(1, 2).long(), attention_mask=torch.ones(1, 2))


def test_lora_fine_tunes_a_classifier_and_saves_its_head(kind, tmp_path):
    peft = library("peft")
    model = kind.make(kind.sequence_class, num_labels=3)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["embeddings"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    ids = torch.randint(12, (4, 5))
    adapted(input_ids=ids, labels=torch.tensor([0, 1, 2, 0])).loss.backward()
    trained = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    assert any("lora_" in name for name in trained) and any("score" in name for name in trained)
    adapted.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(kind.make(kind.sequence_class, num_labels=3), tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(input_ids=ids).logits, adapted.eval()(input_ids=ids).logits)


# Datasets


def test_a_dataset_is_mapped_to_trees(model, tokenizer):
    dataset = Dataset.from_dict({"text": SENTENCES})
    parsed = dataset.map(
        lambda rows: {"tree": [tree.to_bracket() for tree in model.parse(rows["text"], tokenizer)]},
        batched=True,
        batch_size=2,
    )
    assert parsed["tree"][:] == [model.parse(text, tokenizer).to_bracket() for text in SENTENCES]
