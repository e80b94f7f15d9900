import pytest
from demo_server import tiny_checkpoints

from onlstm_hf.demo.models import DemoModels


@pytest.fixture(scope="session")
def models():
    """The models of the page: a tiny one of each type."""
    return DemoModels(tiny_checkpoints())
