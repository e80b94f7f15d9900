"""Unchanged `pipeline("text-classification")` and `evaluate.evaluator` with classifiers of sequence pairs."""

import evaluate
import pytest
import torch
from datasets import Dataset, Features, Value
from transformers import AutoTokenizer, pipeline

from onlstm_hf import generate_logic_pairs
from onlstm_hf.logic.formulas import RELATIONS
from tests.helpers.logic_checkpoints import MODELS, make_logic_model
from tests.helpers.requirements import library
from training.classification.batches import collate
from training.train_logic import build_logic_tokenizer, encode_pairs


class Accuracy(evaluate.Metric):
    """Stand-in for the metric of the `evaluate` library, which needs a download."""

    def _info(self):
        features = Features({"predictions": Value("int64"), "references": Value("int64")})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(map(int.__eq__, predictions, references)) / len(references)}


@pytest.fixture(scope="module")
def pairs():
    return list(generate_logic_pairs(9, seed=3))


@pytest.fixture(scope="module", params=list(MODELS))
def model(request):
    return make_logic_model(request.param)


@pytest.fixture(scope="module")
def checkpoint(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(folder)
    build_logic_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def classify(checkpoint):
    return pipeline("text-classification", model=checkpoint, device="cpu")


@pytest.fixture(scope="module")
def probabilities(model, pairs):
    """Returns the logits of the seven relations for each pair, with both sides encoded separately."""
    with torch.no_grad():
        return model(**collate(encode_pairs(pairs, build_logic_tokenizer()))).logits.softmax(dim=-1).tolist()


def test_the_tokenizer_of_a_checkpoint_marks_both_sides(checkpoint):
    encoded = AutoTokenizer.from_pretrained(checkpoint)("( a b )", "c", padding="max_length", max_length=7)
    assert encoded["token_type_ids"][:5] == [0, 0, 0, 0, 1]
    assert encoded["attention_mask"] == [1, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("kind_of_input", ["list", "generator"])
def test_pairs_give_probabilities_of_all_labels(classify, pairs, probabilities, batch_size, kind_of_input):
    inputs = [{"text": pair.left, "text_pair": pair.right} for pair in pairs]
    inputs = inputs if kind_of_input == "list" else (pair for pair in inputs)
    found = list(classify(inputs, batch_size=batch_size, top_k=None))
    assert len(found) == len(pairs)
    for scores, expected in zip(found, probabilities, strict=True):
        by_label = {entry["label"]: entry["score"] for entry in scores}
        assert by_label == pytest.approx(dict(zip(RELATIONS, expected, strict=True)), abs=1e-5)


def test_a_single_text_is_refused(classify):
    with pytest.raises(ValueError, match="a pair needs both sequences"):
        classify("( a ( and b ) )")


def test_evaluate_measures_accuracy_on_a_dataset_of_pairs(checkpoint, model, pairs, probabilities):
    library("scipy", reason="the evaluator asks for it")
    predicted = [row.index(max(row)) for row in probabilities]
    labels = [RELATIONS.index(pair.relation) for pair in pairs]
    columns = {"text": [pair.left for pair in pairs], "text_pair": [pair.right for pair in pairs], "label": labels}
    scores = evaluate.evaluator("text-classification").compute(
        checkpoint,
        Dataset.from_dict(columns),
        metric=Accuracy(),
        second_input_column="text_pair",
        label_mapping=model.config.label2id,
    )
    right = sum(label == guess for label, guess in zip(labels, predicted, strict=True))
    assert scores["accuracy"] == pytest.approx(right / len(pairs))
