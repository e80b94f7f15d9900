"""Unusual inputs from other tools: numeric masks, 32-bit labels, empty batches."""

import pytest
import torch

from tests.helpers.tiny_models import MODEL_TYPES

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


@pytest.mark.parametrize("value", [-1.0, 0.5, float("nan"), float("-inf"), 2.0])
def test_masks_other_than_0_and_1_are_refused(kind, value):
    mask = torch.ones(2, 4)
    mask[1, 0] = value
    with pytest.raises(ValueError, match="attention_mask must be 1 at real tokens and 0 at padding, not"):
        kind.make()(IDS, attention_mask=mask)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32, torch.bfloat16], ids=str)
def test_masks_of_all_dtypes_are_equivalent(kind, dtype):
    model, mask = kind.make(), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    expected = model(IDS, attention_mask=mask).logits
    torch.testing.assert_close(model(IDS, attention_mask=mask.to(dtype)).logits, expected)


@pytest.mark.parametrize("name", ["labels", "shift_labels"])
@pytest.mark.parametrize("skip_logits", [False, True])
def test_labels_may_have_32_bits(kind, name, skip_logits):
    model = kind.make()
    expected = model(IDS, **{name: IDS}, skip_logits=skip_logits).loss
    assert torch.equal(model(IDS.int(), **{name: IDS.int()}, skip_logits=skip_logits).loss, expected)


@pytest.mark.parametrize("kind", MODEL_TYPES.values(), ids=MODEL_TYPES)
def test_classes_may_have_32_bits(kind):
    model, labels = kind.make(kind.sequence_class, num_labels=3), torch.tensor([2, 0])
    expected = model(IDS, labels=labels).loss
    assert torch.equal(model(IDS, labels=labels.int()).loss, expected)
    if kind.pair_class is not None:
        model = kind.make(kind.pair_class, num_labels=3)
        pair = {"input_ids": IDS, "input_ids_pair": IDS.flip(1)}
        assert torch.equal(model(**pair, labels=labels.int()).loss, model(**pair, labels=labels).loss)


@pytest.mark.parametrize("implementation", ["auto", "reference"])
@pytest.mark.parametrize("masked", [False, True])
def test_an_empty_batch_has_empty_outputs(kind, implementation, masked):
    model, ids = kind.make(), torch.zeros(0, 4, dtype=torch.long)
    model.set_implementation(implementation)
    output = model(ids, attention_mask=torch.ones_like(ids) if masked else None)
    assert output.logits.shape == (0, 4, model.config.vocab_size) and output.state.batch_size == 0
