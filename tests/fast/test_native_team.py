"""Parts of the compiled operators' work are taken by whichever thread runs; the results are those of the parts."""

import os
import subprocess
import sys

import pytest
import torch

from onlstm_hf.fast.onlstm import native as onlstm
from onlstm_hf.fast.prpn import native as prpn
from onlstm_hf.fast.recurrence.tensor_tuples import flatten
from tests.fast.test_fake_tensors import onlstm_inputs, prpn_inputs
from tests.helpers.native_operators import needs_operator

NUM_PARTS = 3
COMPUTE = "import sys; from tests.fast.test_native_team import compute; compute(sys.argv[1])"


def compute(path: str) -> None:
    """Writes what both operators return for one problem, divided into `NUM_PARTS` parts.

    They are called directly: oneDNN's products are wrong where the system grants fewer threads than it counts on.
    """
    torch.set_num_threads(NUM_PARTS)
    found = []
    for module, make in ((onlstm, onlstm_inputs), (prpn, prpn_inputs)):
        torch.manual_seed(0)
        with torch.no_grad():
            inputs, options = make("cpu")
            trace = module.forward(inputs, options)
            grad_trace = type(trace)(*map(torch.randn_like, trace))
            found += [*trace, *flatten(module.backward(grad_trace, trace, inputs, options))]
    torch.save(found, path)


@needs_operator(onlstm.OPERATOR)
@needs_operator(prpn.OPERATOR)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_threads_that_there_are_take_the_parts_of_those_that_are_missing(num_threads, tmp_path, project_root):
    """The system grants fewer threads than were asked for, as where the others never get a core."""
    environment = {**os.environ, "OMP_THREAD_LIMIT": str(num_threads)}
    subprocess.run(
        [sys.executable, "-c", COMPUTE, tmp_path / "few.pt"],
        cwd=project_root,
        env=environment,
        check=True,
        timeout=300,
    )
    compute(tmp_path / "all.pt")
    few, expected = torch.load(tmp_path / "few.pt"), torch.load(tmp_path / "all.pt")
    assert len(few) == len(expected) > 10
    assert all(map(torch.equal, few, expected))
