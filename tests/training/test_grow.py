"""Growing a small ON-LSTM: same predictions, trainable weights, and the script."""

import json
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM, RNNConfig, RNNForCausalLM, build_word_tokenizer
from tests.helpers.training_runs import write_recipe
from training import grow, train_lm

VOCAB_SIZE = 11


def model_of(num_chunks: list[int], chunk_size: int, weight_dropout: float = 0.0, seed: int = 0) -> ONLSTMForCausalLM:
    """Returns a float64 model with `num_chunks` chunks per layer and weights large enough for distinct outputs."""
    torch.manual_seed(seed)
    config = config_of(num_chunks, chunk_size, weight_dropout)
    model = ONLSTMForCausalLM(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    return model


def config_of(num_chunks: list[int], chunk_size: int, weight_dropout: float = 0.0) -> ONLSTMConfig:
    sizes = [number * chunk_size for number in num_chunks]
    layers = {"embedding_size": sizes[-1], "hidden_size": sizes[0], "layer_sizes": sizes}
    options = {"num_hidden_layers": len(sizes), "chunk_size": chunk_size, "weight_dropout": weight_dropout}
    return ONLSTMConfig(vocab_size=VOCAB_SIZE, parse_layer=0, **layers, **options)


@st.composite
def growths(draw) -> tuple[ONLSTMForCausalLM, ONLSTMConfig]:
    old = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    new = [number + draw(st.integers(0, 4)) for number in old]
    chunk_size = draw(st.integers(1, 3))
    dropouts = st.sampled_from([0.0, 0.2, 0.5])
    small = model_of(old, chunk_size, draw(dropouts), draw(st.integers(0, 100)))
    return small, config_of(new, chunk_size + draw(st.integers(0, 2)), draw(dropouts))


@given(growth=growths())
@settings(max_examples=40, deadline=None)
def test_a_grown_model_predicts_what_the_small_one_does(growth):
    small, config = growth
    large = grow.grow(small, config, new_chunk_logit=-100.0)
    assert large.config.layer_sizes == config.layer_sizes
    input_ids = torch.randint(VOCAB_SIZE, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(large(input_ids=input_ids).logits, small(input_ids=input_ids).logits)


def test_layers_keep_their_distances_if_the_number_of_chunks_doubles():
    small = model_of([3, 4, 2], 2)
    large = grow.grow(small, config_of([6, 8, 4], 2), new_chunk_logit=-100.0)
    input_ids = torch.randint(VOCAB_SIZE, (2, 7))
    with torch.no_grad():
        old, new = (model(input_ids=input_ids, output_distances=True) for model in (small, large))
    torch.testing.assert_close(new.forget_distances, old.forget_distances)
    torch.testing.assert_close(new.input_distances, old.input_distances)


def changed_by_two_updates(model: ONLSTMForCausalLM) -> dict[str, torch.Tensor]:
    """Returns the entries of each weight that two updates without dropout change."""
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    input_ids = torch.arange(VOCAB_SIZE).repeat(2, 2)
    for _ in range(2):
        optimizer.zero_grad()
        model(input_ids=input_ids, labels=input_ids).loss.backward()  # in evaluation mode
        optimizer.step()
    return {name: (weight - before[name]).abs() > 1e-6 for name, weight in model.named_parameters()}


def test_every_trainable_weight_of_a_new_model_is_trainable_in_a_grown_one():
    # By the equations nothing is written to the cells of the last chunk, so that its gates get no gradient.
    new_config = config_of([3, 4, 3], 3)
    grown = changed_by_two_updates(grow.grow(model_of([2, 2, 2], 2), new_config))
    new = changed_by_two_updates(model_of([3, 4, 3], 3))
    assert grown.keys() == new.keys()
    for name, changed in new.items():
        assert changed.any() and (grown[name] | ~changed).all(), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 2}, "num_hidden_layers is 3 and cannot become 2"),
        ({"vocab_size": 12}, "vocab_size is 11 and cannot become 12"),
        ({"chunk_size": 2, "embedding_size": 16, "hidden_size": 24}, "chunk_size is 4 and cannot become 2"),
        ({"hidden_size": 8}, "layer 0 has 3 chunks and cannot have 2: it can only grow"),
        ({"tie_word_embeddings": False}, "only models with tied embeddings"),
    ],
)
def test_impossible_growth_is_refused(changes, message):
    small = model_of([3, 3, 2], 4)
    fields = {name: value for name, value in small.config.to_dict().items() if name != "layer_sizes"}
    with pytest.raises(ValueError, match=message):
        grow.grow(small, ONLSTMConfig(**{**fields, "parse_layer": 0, **changes}))


RECIPE = {
    "model": {"embedding_size": 12, "hidden_size": 15, "chunk_size": 3, "weight_dropout": 0.4, "input_dropout": 0.1},
    **{"bptt_length": 6, "batch_size": 2, "num_epochs": 1, "optimizer": "adamw", "learning_rate": 0.01},
    "validation_files": ["train.txt"],
}


@pytest.fixture
def small_checkpoint(tmp_path, monkeypatch):
    """Working directory with a small checkpoint, its text and a recipe with larger sizes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("the cat sees a dog\nthe dog sleeps\na bird sees the cat\n" * 4)
    write_recipe(**RECIPE)
    tokenizer = build_word_tokenizer(["train.txt"])
    ids = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    config = ONLSTMConfig(**ids, embedding_size=8, hidden_size=10, chunk_size=2)
    ONLSTMForCausalLM(config).save_pretrained("small")
    tokenizer.save_pretrained("small")
    return tmp_path


def test_the_script_writes_a_checkpoint_of_the_recipes_size_that_can_be_trained(small_checkpoint, capsys):
    assert grow.main(["small", "recipe.yaml", "--output-dir", "grown"]) == 0
    assert "grown: grown from" in capsys.readouterr().out
    small, grown = (AutoModelForCausalLM.from_pretrained(name) for name in ("small", "grown"))
    assert grown.config.layer_sizes == [15, 15, 12]
    assert (grown.config.chunk_size, grown.config.weight_dropout, grown.config.input_dropout) == (3, 0.4, 0.1)
    tokenizer = AutoTokenizer.from_pretrained("grown")
    assert tokenizer("the cat").input_ids == AutoTokenizer.from_pretrained("small")("the cat").input_ids
    input_ids = torch.tensor([tokenizer("the cat sees a dog").input_ids])
    with torch.no_grad():
        # Approximately, since new chunks get some mass of the gates.
        torch.testing.assert_close(grown(input_ids).logits, small(input_ids).logits, atol=0.01, rtol=0)

    train_lm.main(["recipe.yaml", "--init_from", "grown", "--output_dir", "run"])
    results = json.loads((small_checkpoint / "run" / "results.json").read_text())
    assert results["parameters"] == grown.num_parameters()


def test_the_same_seed_grows_the_same_weights(small_checkpoint):
    weights = []
    for folder, seed in (("first", "1"), ("again", "1"), ("other", "2")):
        grow.main(["small", "recipe.yaml", "--output-dir", folder, "--seed", seed])
        weights.append((small_checkpoint / folder / "model.safetensors").read_bytes())
    first, again, other = weights
    assert first == again != other


def test_errors_of_the_script_name_the_cause(small_checkpoint, refusal):
    write_recipe("prpn.yaml", **RECIPE, model_type="prpn")
    (small_checkpoint / "text.yaml").write_text("only text")
    shutil.copytree("small", "rnn")
    RNNForCausalLM(RNNConfig(vocab_size=13, embedding_size=8, hidden_size=10)).save_pretrained("rnn")
    for checkpoint, recipe, message in (
        ("none", "recipe.yaml", "there is no checkpoint"),
        ("small", "none.yaml", "none.yaml"),
        ("small", "prpn.yaml", 'cannot be grown to the type "prpn" of prpn.yaml'),
        ("small", "text.yaml", "text.yaml must be a mapping"),
        ("rnn", "recipe.yaml", 'a checkpoint of type "rnn" cannot be grown'),
    ):
        assert message in refusal(grow, checkpoint, recipe, "--output-dir", "grown")
    assert not (small_checkpoint / "grown").exists()
    assert "small exists already" in refusal(grow, "small", "recipe.yaml", "--output-dir", "small")
