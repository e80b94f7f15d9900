import pytest
import torch
from torch import nn

from onlstm_hf.models.dropout import LockedDropout, drop_connect, dropped_words

PROBABILITY = 0.4


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_locked_dropout_keeps_one_mask_for_all_steps_of_a_sequence(dtype):
    dropped = LockedDropout(PROBABILITY)(torch.ones(6, 50, 40, dtype=dtype))
    assert dropped.dtype == dtype
    assert (dropped == dropped[0]).all()
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / (1 - PROBABILITY), dtype=dtype).item()}
    assert not (dropped[0] == dropped[0, 0]).all(), "every sequence has its own mask"
    assert (dropped == 0).float().mean().item() == pytest.approx(PROBABILITY, abs=0.05)


@pytest.mark.parametrize(("probability", "training"), [(PROBABILITY, False), (0.0, True)])
def test_nothing_is_dropped_in_evaluation_or_without_probability(probability, training):
    inputs = torch.randn(3, 4, 5)
    assert LockedDropout(probability).train(training)(inputs) is inputs
    embedding, input_ids = nn.Embedding(9, 6), torch.randint(9, (3, 4))
    assert torch.equal(dropped_words(embedding, input_ids, probability, training), embedding(input_ids))


def test_a_dropped_word_is_zero_at_all_positions():
    embedding = nn.Embedding(200, 6)
    input_ids = torch.randint(200, (30, 40))
    embedded = dropped_words(embedding, input_ids, PROBABILITY, training=True)
    is_dropped = (embedded == 0).all(-1)
    dropped = set(input_ids[is_dropped].tolist())
    assert not dropped & set(input_ids[~is_dropped].tolist())
    assert len(dropped) / 200 == pytest.approx(PROBABILITY, abs=0.1)
    torch.testing.assert_close(embedded[~is_dropped], embedding(input_ids[~is_dropped]) / (1 - PROBABILITY))

    embedded.sum().backward()
    assert {word for word in range(200) if (embedding.weight.grad[word] == 0).all()} == dropped | (
        set(range(200)) - set(input_ids.flatten().tolist())
    )


def test_drop_connect_zeroes_weights_without_rescaling_in_training():
    weight = nn.Parameter(torch.randn(60, 50))
    dropped = drop_connect(weight, PROBABILITY, training=True)
    kept = dropped != 0
    assert torch.equal(dropped[kept], weight[kept])
    assert kept.float().mean().item() == pytest.approx(1 - PROBABILITY, abs=0.05)
    assert not torch.equal(dropped, drop_connect(weight, PROBABILITY, training=True))
    dropped.sum().backward()
    assert torch.equal(weight.grad, kept.float())


@pytest.mark.parametrize("probability", [0.01, 0.45, 0.999999])
def test_drop_connect_drops_entries_independently(probability):
    dropped = drop_connect(torch.ones(1001, 333), probability, training=True).flatten() == 0
    deviation = (probability * (1 - probability) / len(dropped)) ** 0.5
    assert dropped.float().mean().item() == pytest.approx(probability, abs=5 * deviation + 2**-16)
    for distance in range(1, 9):
        both = (dropped[distance:] & dropped[:-distance]).float().mean().item()
        assert both == pytest.approx(probability**2, abs=10 * deviation + 2**-15)


def test_drop_connect_scales_weights_in_evaluation():
    weight = torch.randn(6, 5)
    torch.testing.assert_close(drop_connect(weight, PROBABILITY, training=False), weight * (1 - PROBABILITY))
