"""Siamese classifiers of sequence pairs: logits, loss, saving and loading."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from onlstm_hf import RNNConfig
from onlstm_hf.models.heads import PairClassifier
from tests.helpers.tiny_models import KINDS, PAD, pad, random_rows

LABELS = ["<", ">", "=", "^", "|", "#", "v"]
ID2LABEL = dict(enumerate(LABELS))
LABEL2ID = {label: index for index, label in ID2LABEL.items()}


@pytest.fixture(params=[name for name, kind in KINDS.items() if kind.pair_class])
def model(request):
    kind = KINDS[request.param]
    options = {**kind.no_dropout, "classifier_dropout": 0.0, "id2label": ID2LABEL, "label2id": LABEL2ID}
    return kind.make(kind.pair_class, **options)


@pytest.fixture
def sides():
    """Returns the rows of both sides in all combinations of lengths."""
    rows = random_rows()
    torch.manual_seed(5)
    others = [torch.randint(PAD, (length,)) for length in (2, 9, 6)]
    return rows, others


def as_inputs(sides, padding_side="right"):
    (ids, mask, _), (ids_pair, mask_pair, _) = (pad(rows, padding_side) for rows in sides)
    return {"input_ids": ids, "attention_mask": mask, "input_ids_pair": ids_pair, "attention_mask_pair": mask_pair}


def expected_logits(model, sides):
    """Computes the classifier's equations for one sequence at a time."""
    hidden, output = model.classifier.hidden, model.classifier.output
    logits = []
    for left, right in zip(*sides, strict=True):
        u, v = (model.model(row[None]).last_hidden_state[0, -1] for row in (left, right))
        features = torch.cat([u, v, u * v, (u - v).abs()])
        logits.append(output.weight @ F.elu(hidden.weight @ features + hidden.bias) + output.bias)
    return torch.stack(logits)


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_logits_compare_the_outputs_after_the_last_real_tokens(model, sides, padding_side):
    with torch.no_grad():
        logits = model(**as_inputs(sides, padding_side)).logits
        torch.testing.assert_close(logits, expected_logits(model, sides), rtol=1e-4, atol=1e-5)


def test_masks_are_optional_without_padding(model):
    sides = [torch.randint(PAD, (3, 4)), torch.randint(PAD, (3, 7))]
    for pair in (sides, [sides[0], sides[0].flip(0)]):
        with torch.no_grad():
            logits = model(pair[0], input_ids_pair=pair[1]).logits
            torch.testing.assert_close(logits, expected_logits(model, pair), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_joined_pairs_are_split_by_token_types(model, sides, padding_side):
    ids, mask, places = pad([torch.cat(rows) for rows in zip(*sides, strict=True)], padding_side)
    types = torch.ones_like(ids)  # ids at padding do not matter
    for index, (place, left) in enumerate(zip(places, sides[0], strict=True)):
        types[index, place.start : place.start + len(left)] = 0
    with torch.no_grad():
        logits = model(ids, attention_mask=mask, token_type_ids=types).logits
        torch.testing.assert_close(logits, expected_logits(model, sides), rtol=1e-4, atol=1e-5)


def test_loss_is_the_mean_cross_entropy_and_depends_on_every_weight(model, sides):
    labels = torch.tensor([6, 0, 3])
    output = model(**as_inputs(sides), labels=labels)
    log_probabilities = output.logits.double().log_softmax(dim=-1)
    expected = -log_probabilities[range(3), labels].mean()
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-6)
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model(**as_inputs(sides), labels=labels, return_dict=False)[0] == output.loss


def test_a_custom_loss_function_is_used(model, sides):
    model.loss_function = lambda labels, pooled_logits, config, **others: pooled_logits[range(3), labels].sum()
    output = model(**as_inputs(sides), labels=torch.tensor([6, 0, 3]))
    assert torch.equal(output.loss, output.logits[range(3), [6, 0, 3]].sum())


@pytest.mark.parametrize(
    "options",
    [
        {"problem_type": "regression"},
        {"problem_type": "multi_label_classification"},
        {"id2label": {0: "score"}, "label2id": {"score": 0}},
    ],
)
def test_other_problem_types_are_refused(model, options):
    config = type(model.config)(**{**model.config.to_dict(), **options})
    with pytest.raises(ValueError, match="gives each pair one of two labels or more, not problem_type="):
        type(model)(config)


def test_the_classifier_has_dropout_before_both_maps():
    classifier = PairClassifier(50, RNNConfig(num_labels=2, classifier_dropout=0.5))
    for projection in (classifier.hidden, classifier.output):
        nn.init.ones_(projection.weight)
        nn.init.zeros_(projection.bias)
    ones = torch.ones(400, 50)
    torch.manual_seed(0)
    # Three of the four parts are 1 and the last is 0; dropout keeps both means.
    assert classifier(ones, ones).mean().item() == pytest.approx(150 * 50, rel=0.02)
    assert classifier(ones, ones).std() > 500
    assert classifier.eval()(ones, ones).unique().tolist() == [150 * 50]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": None}, "give input_ids and input_ids_pair"),
        ({"input_ids_pair": None}, "give input_ids and input_ids_pair"),
        ({"input_ids_pair": None, "token_type_ids": torch.zeros(3, 6)}, "pair 0 has no tokens of type 1"),
        ({"input_ids": torch.zeros(3, dtype=torch.long)}, "of one batch_size"),
        ({"input_ids_pair": torch.zeros(2, 4, dtype=torch.long)}, "of one batch_size"),
        ({"attention_mask": torch.ones(3, 1)}, "attention_mask must have the shape of the input"),
        ({"input_ids": torch.full((3, 6), 99)}, "outside the vocabulary"),
        ({"labels": torch.tensor([0, 1])}, r"batch_size \(3\)"),
    ],
)
def test_inconsistent_inputs_are_refused(model, sides, change, message):
    with pytest.raises(ValueError, match=message):
        model(**{**as_inputs(sides), **change})
