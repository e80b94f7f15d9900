"""Every ablation replaces something by what does the same; no test says what an optimisation gives."""

import json

import pytest
import torch

from eval import benchmark_ablations
from eval.benchmark_ablations import memory_table, time_table
from eval.speed.ablation_turns import WITH_ALL
from eval.speed.ablations import ABLATIONS, CASES, RANDOM_BITS
from tests.helpers.tiny_models import KINDS, VOCAB_SIZE


def loss_and_gradients(model):
    torch.manual_seed(0)
    ids = torch.randint(VOCAB_SIZE, (3, 7))
    loss = model(ids, shift_labels=ids, skip_logits=True, num_items_in_batch=5).loss
    return loss, *torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)


@pytest.mark.parametrize("kind", ["onlstm", "prpn", "lstm"])
@pytest.mark.parametrize("name", [name for name in ABLATIONS if name != RANDOM_BITS])
def test_without_an_optimisation_the_same_is_computed(name, kind):
    if name.endswith("linear_cross_entropy") and not hasattr(torch.nn.functional, "linear_cross_entropy"):
        pytest.skip("this PyTorch has no linear_cross_entropy")
    model = KINDS[kind].make().train()
    expected = loss_and_gradients(model)
    with ABLATIONS[name].switched_off():
        torch.testing.assert_close(loss_and_gradients(model), expected, rtol=1e-4, atol=1e-5)


def test_each_case_has_optimisations_and_each_of_them_a_case():
    for case in CASES.values():
        assert any(ablation.applies_to(case) for ablation in ABLATIONS.values())
    for ablation in ABLATIONS.values():
        assert any(ablation.applies_to(case) for case in CASES.values())


def test_tables_have_what_was_measured():
    seconds = {"training prpn bf16": {WITH_ALL: [1.0, 2.0], "products by oneDNN": [1.5, 3.0]}}
    assert "| products by oneDNN | 1.5 |" in time_table(seconds)
    assert f"| {WITH_ALL}, ms | 1,500 (1,250 to 1,750) |" in time_table(seconds)
    peaks = {"training prpn bf16": {WITH_ALL: 2**20, "products by oneDNN": 2**21}}
    assert memory_table(peaks).endswith("| products by oneDNN | 2 |")


@pytest.fixture
def measured_at_once(monkeypatch):
    monkeypatch.setattr(benchmark_ablations, "take_turns", lambda start, rounds: {WITH_ALL: [1.0] * rounds})
    monkeypatch.setattr(benchmark_ablations, "measure_peaks", lambda start: {WITH_ALL: 2**20})
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)


def test_the_command_measures_a_case(measured_at_once, tmp_path, capsys):
    arguments = ["--text", "train.txt", "--cases", "training prpn bf16", "--output", str(tmp_path / "results.json")]
    assert benchmark_ablations.main(arguments) == 0
    assert json.loads((tmp_path / "results.json").read_text())["seconds"] == {
        "training prpn bf16": {WITH_ALL: [1] * 9}
    }
    assert "training prpn bf16" in capsys.readouterr().out


def test_without_a_treebank_only_training_is_measured(measured_at_once, capsys):
    assert benchmark_ablations.main(["--text", "train.txt"]) == 0
    assert "parsing" not in capsys.readouterr().out
    assert benchmark_ablations.main(["--text", "train.txt", "--cases", "parsing prpn float32"]) == 1
    assert "parsing needs sentences: --treebank" in capsys.readouterr().err
