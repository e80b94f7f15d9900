"""A changed equation works with `--implementation reference` without any other change."""

from pathlib import Path

import pytest

from training import train_lm

REGISTRATION = """

from transformers import AutoConfig, AutoModelForCausalLM


class ChangedConfig(ONLSTMConfig):
    model_type = "{name}"


for _model in (ONLSTMPreTrainedModel, ONLSTMModel, ONLSTMForCausalLM):
    _model.config_class = ChangedConfig
AutoConfig.register("{name}", ChangedConfig)
AutoModelForCausalLM.register(ChangedConfig, ONLSTMForCausalLM)
"""
EQUATION = "hidden = output_gate * cell.tanh()"
CHANGES = {"as_it_is": EQUATION, "changed": "hidden = output_gate * (1 + cell.tanh())"}


def copy_of_the_model(project_root: Path, folder: Path, change: str) -> Path:
    """Writes a copy of `modeling_onlstm.py` with one line replaced, as a file for `--model_code`."""
    text = (project_root / "onlstm_hf" / "models" / "modeling_onlstm.py").read_text(encoding="utf-8")
    assert text.count(EQUATION) == 1
    text = text.replace(EQUATION, CHANGES[change])
    text = text.replace("from ..", "from onlstm_hf.").replace("from .", "from onlstm_hf.models.")
    path = folder / f"{change}.py"
    path.write_text(text + REGISTRATION.format(name=change), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def train(project_root, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("equations")
    (tmp_path / "text.txt").write_text("the cat sees a dog\na dog sees the old cat\n" * 20)

    def train(change: str, implementation: str) -> float:
        code = copy_of_the_model(project_root, tmp_path, change)
        text, run = str(tmp_path / "text.txt"), str(tmp_path / f"{change}-{implementation}")
        sizes = ["--model.embedding_size", "8", "--model.hidden_size", "12", "--model.chunk_size", "4"]
        options = ["--bptt_length", "6", "--batch_size", "2", "--optimizer", "adam", "--learning_rate", "0.01"]
        data = ["--train_files", text, "--validation_files", text, "--max_steps", "4", "--output_dir", run]
        model = ["--model_code", str(code), "--model_type", change, "--implementation", implementation]
        return train_lm.main([*data, *options, *sizes, *model])["validation_perplexity"]

    return train


def test_training_uses_a_changed_equation(train):
    reference = train("as_it_is", "reference")
    assert reference == pytest.approx(train("as_it_is", "auto"), rel=1e-5)
    assert abs(train("changed", "reference") / reference - 1) > 1e-4
