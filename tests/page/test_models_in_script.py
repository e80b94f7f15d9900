"""The models of the page's script, compared with PyTorch."""

import math

import pytest
import torch

from eval.compare_page import read_in_node
from onlstm_hf import build_word_tokenizer
from onlstm_hf.page.site import write_page
from tests.helpers.page_scripts import error_of_script
from tests.helpers.tiny_models import KINDS, save_checkpoint

WORDS = ["<eos>", "<unk>", "the", "cat", "sat", "on", "mat", "old", "dog", "saw", "dogs", "it", "a"]
SENTENCES = [[2, 7, 8, 9, 2, 3], [3], [], [11, 4, 5, 11, 2, 3, 4, 5, 12, 6, 2, 7], [1, 12, 1]]
VARIANTS = {
    **{name: (name, {}) for name in KINDS},
    "onlstm, last layer": ("onlstm", {"parse_layer": 2, "num_hidden_layers": 3, "weight_dropout": 0.4}),
    "untied": ("onlstm", {"tie_word_embeddings": False, "embedding_size": 12}),
    "prpn, soft": ("prpn", {"hard": False, "num_slots": 5, "lookback": 3}),
    "prpn, residual": ("prpn", {"num_residual_blocks": 2}),
    "prpn, no reading attention": ("prpn", {"reading_attention": False}),
    "prpn, no prediction attention": ("prpn", {"prediction_attention": False}),
    "prpn, no parsing network": ("prpn", {"parsing_network": False}),
    "prpn, no lookback": ("prpn", {"lookback": 0, "num_hidden_layers": 3}),
}


def make(variant):
    name, options = VARIANTS[variant]
    model = KINDS[name].make(eos_token_id=0, **options)
    generator = torch.Generator().manual_seed(5)
    for buffer_name, buffer in model.named_buffers():
        if "running" in buffer_name:
            buffer.uniform_(0.5, 1.5, generator=generator)
    return model


@torch.no_grad()
def outputs(model, ids):
    return model(torch.tensor([[0, *ids]]), **({"output_distances": True} if model.induces_trees else {}))


def write(folder, variants, **options):
    tokenizer = build_word_tokenizer(vocabulary=WORDS, pad_token="<eos>")
    checkpoints = folder.with_name("checkpoints")
    write_page(folder, [save_checkpoint(checkpoints / name, make(name), tokenizer) for name in variants], **options)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A page with every model variant, in float32."""
    return write(tmp_path_factory.mktemp("page") / "site", VARIANTS, precision="float32")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_script_matches_pytorch(site, variant):
    model = make(variant)
    for ids, reading in zip(SENTENCES, read_in_node(site / "models" / variant, SENTENCES), strict=True):
        output = outputs(model, ids)
        log_probabilities = output.logits[0].double().log_softmax(-1)
        targets = [*ids, 0]
        surprisals = -log_probabilities[range(len(targets)), targets] / math.log(2)
        assert reading["surprisals"] == pytest.approx(surprisals.tolist(), abs=2e-4)
        for place, expected in enumerate(reading["expected"]):
            best = log_probabilities[place].exp().topk(5)
            assert [guess["probability"] for guess in expected] == pytest.approx(best.values.tolist(), abs=1e-5)
            assert expected[0]["id"] == best.indices[0]
        if not model.induces_trees:
            assert reading["distances"] == []
            continue
        distances = model.distances_by_layer(output)[:, 0, 1:]
        for layer, values in zip(reading["distances"], distances.tolist(), strict=True):
            assert layer == pytest.approx(values, abs=1e-5)


@pytest.mark.parametrize(("bytes_per_weight", "tolerance"), [(0, 0.05), (9, 1e-4)])
@pytest.mark.parametrize("variant", ["onlstm", "prpn, soft"])
def test_the_script_reads_integers_of_8_and_16_bits(tmp_path, monkeypatch, variant, bytes_per_weight, tolerance):
    monkeypatch.setattr("onlstm_hf.page.weights.MOST_BYTES_PER_WEIGHT", bytes_per_weight)
    model = make(variant)
    (reading,) = read_in_node(write(tmp_path / "site", [variant]) / "models" / variant, SENTENCES[:1])
    layer = model.config.parse_layer or 0
    expected = model.distances_by_layer(outputs(model, SENTENCES[0]))[layer, 0, 1:].tolist()
    assert reading["distances"][layer] == pytest.approx(expected, abs=tolerance)


@torch.no_grad()
def test_forget_gates_match_the_equations(site):
    model = make("onlstm")
    (reading,) = read_in_node(site / "models" / "onlstm", SENTENCES[:1])
    hidden_states = model.model(torch.tensor([[0, *SENTENCES[0]]]), output_hidden_states=True).hidden_states
    for number, layer in enumerate(model.model.layers):
        levels = layer.size // layer.chunk_size
        inputs, outputs = hidden_states[number][0], hidden_states[number + 1][0]
        previous = torch.cat([torch.zeros(1, layer.size), outputs[:-1]])
        recurrent = layer.recurrent_projection
        gates = layer.input_projection(inputs) + recurrent.bias
        gates = gates + previous @ recurrent.weight.T * (1 - model.config.weight_dropout)
        master_forget = gates[1:, levels : 2 * levels].softmax(-1).cumsum(-1)  # equations 6 and 7 of the paper
        found = torch.tensor(reading["forgetGates"][number]), torch.tensor(reading["distances"][number])
        torch.testing.assert_close(found, (master_forget, 1 - master_forget.mean(-1)), atol=1e-5, rtol=0)


def test_memory_gates_of_a_prpn_match_its_output(site):
    (reading,) = read_in_node(site / "models" / "prpn", SENTENCES[:1])
    expected = outputs(make("prpn"), SENTENCES[0]).memory_gates[0, 0, 1:]
    torch.testing.assert_close(torch.tensor(reading["forgetGates"][0]), expected, atol=1e-5, rtol=0)


def test_a_weights_file_of_another_size_is_refused():
    read = """tensors.readTensors(new ArrayBuffer(16), [{ name: "x", shape: [3], dtype: "float32" }])"""
    assert "incomplete" in error_of_script(read, tensors="model/tensors.js")
