import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.helpers.requirements import library, missing

PROJECT_ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tests neither read nor write the user's cache of data sets.
_dataset_cache = tempfile.TemporaryDirectory(prefix="datasets-")
os.environ["HF_DATASETS_CACHE"] = _dataset_cache.name
# Temporary files are in memory, since runs sync many small files. Docker's /dev/shm is too small or not executable.
_memory = Path("/dev/shm")
if _memory.is_dir() and os.access(_memory, os.W_OK):
    _status = os.statvfs(_memory)
    if _status.f_bavail * _status.f_frsize > 2**30 and not _status.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_memory))
# Several threads slow tiny models down. Must be set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from accelerate.state import AcceleratorState, GradientState  # noqa: E402

try:  # check_gpu.py runs the GPU tests without hypothesis
    from hypothesis import HealthCheck, settings
except ImportError:
    pass
else:  # no test fails on a slow machine
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")


@pytest.fixture(scope="session")
def project_root() -> Path:
    return PROJECT_ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of reference data and golden numbers of the authors' code, which are not part of the repository."""
    path = Path(os.environ.get("ONLSTM_SHARED", PROJECT_ROOT.parent / "shared"))
    if not path.is_dir():
        missing("data", f"reference data not found at {path}; set ONLSTM_SHARED to its folder")
    return path


@pytest.fixture(scope="session")
def tokenizer():
    from onlstm_hf import build_word_tokenizer
    from tests.helpers.command_line import WORDS

    return build_word_tokenizer(vocabulary=WORDS, lowercase=True, digits_to_n=True, pad_token="<eos>")


@pytest.fixture(scope="session")
def model(tokenizer):
    """A tiny ON-LSTM whose weights are large enough for its layers to disagree on the trees."""
    from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2}
    model = ONLSTMForCausalLM(ONLSTMConfig(**sizes, chunk_size=2, eos_token_id=0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    return model


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory, model, tokenizer) -> Path:
    """Read-only folder of this model and its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def fresh_metric_modules(tmp_path_factory):
    """Isolates the copies of metric modules from the user's cache and from other tests."""
    evaluate = library("evaluate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        patch.setattr(evaluate.config, "HF_METRICS_CACHE", str(tmp_path_factory.mktemp("metrics")))
        patch.setattr(sys, "path", list(sys.path))
        for name in [name for name in sys.modules if name.partition(".")[0] == "evaluate_modules"]:
            patch.delitem(sys.modules, name)
        yield


@pytest.fixture
def refusal(capsys):
    """Runs a script, which must fail with an error of one line, and returns the error without the script's name."""

    def refusal(script, *arguments):
        capsys.readouterr()
        assert script.main([str(argument) for argument in arguments]) == 1
        name = f"{Path(script.__file__).name}: "
        output = capsys.readouterr().err
        assert "Traceback" not in output
        (error,) = [line for line in output.splitlines() if line.startswith(name)]
        return error.removeprefix(name)

    return refusal


@pytest.fixture(autouse=True)
def fresh_accelerate():
    """Resets Accelerate's process-wide state and the thread count, so that every test acts like a new process."""
    threads = torch.get_num_threads()
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    torch.set_num_threads(threads)
