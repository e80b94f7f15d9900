"""The Tree-LSTM, compared with its equations in float64, computed recursively for each tree."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from onlstm_hf import TreeLSTMConfig, TreeLSTMForSequencePairClassification, generate_logic_pairs
from onlstm_hf.models.modeling_tree_lstm import read_brackets
from training.classification.batches import collate
from training.train_logic import build_logic_tokenizer, encode_pairs

VOCABULARY = build_logic_tokenizer().get_vocab()


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = TreeLSTMConfig(vocab_size=len(VOCABULARY), embedding_size=5, hidden_size=7, num_labels=7)
    model = TreeLSTMForSequencePairClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    return model.eval()


def nested(formula):
    """Parses `( a ( and b ) )` into `("a", ("and", "b"))`."""
    quoted = " ".join(token if token in "()" else f'"{token}",' for token in formula.split())
    return eval(quoted.replace(")", "),"))[0]


def compose(model, tree):
    """Computes hidden and cell state by Tai et al. (2015), equations 9 to 14 with two children and words at leaves."""
    weights = {name: tensor.double() for name, tensor in model.model.state_dict().items()}
    if isinstance(tree, str):
        word = weights["embeddings.weight"][VOCABULARY[tree]]
        gates = weights["word_projection.weight"] @ word + weights["word_projection.bias"]
        i, o, u = gates.split(7)
        cell = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(cell), cell
    (left, left_cell), (right, right_cell) = (compose(model, child) for child in tree)
    gates = weights["composition.weight"] @ torch.cat([left, right]) + weights["composition.bias"]
    i, f_left, f_right, o, u = gates.split(7)
    cell = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f_left) * left_cell + torch.sigmoid(f_right) * right_cell
    return torch.sigmoid(o) * torch.tanh(cell), cell


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_batch_of_trees_follows_the_equations(model, side):
    pairs = list(generate_logic_pairs(30, seed=3))
    inputs = collate(encode_pairs(pairs, build_logic_tokenizer()))
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    if side == "left":
        ids, mask = ids.flip(1), mask.flip(1)
        for row, keep in zip(ids, mask.bool(), strict=True):
            row[keep] = row[keep].flip(0)
    with torch.no_grad():
        roots = model.model(ids, mask)
    expected = torch.stack([compose(model, nested(pair.left))[0] for pair in pairs])
    torch.testing.assert_close(roots.double(), expected, rtol=1e-4, atol=1e-5)


def test_the_loss_depends_on_every_weight_and_decreases(model):
    inputs = collate(encode_pairs(list(generate_logic_pairs(40, seed=5)), build_logic_tokenizer()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(15):
        loss = model.train()(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_dropout_acts_in_training_only(model):
    ids = torch.full((20, 1), VOCABULARY["a"])
    assert len(model.model(ids, None).unique(dim=0)) == 1
    assert len(model.train().model(ids, None).unique(dim=0)) > 1


def test_saving_and_loading(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is TreeLSTMForSequencePairClassification
    assert type(AutoConfig.from_pretrained(tmp_path)) is TreeLSTMConfig
    assert all(torch.equal(weight, loaded.state_dict()[name]) for name, weight in model.state_dict().items())
    assert (tmp_path / "modeling_tree_lstm.py").exists()


@pytest.mark.parametrize(
    "tokens", ["( a )", "( a b b )", "a b", "( a b", "a b )", "( ) a", "( ( a b )", ")", "( a b ) )", "( ( ) a )"]
)
def test_brackets_must_form_a_binary_tree(tokens):
    row = [VOCABULARY[token] for token in tokens.split()]
    with pytest.raises(ValueError, match="sequence 1 is no binary tree"):
        read_brackets([[5], row], 0, 1)
