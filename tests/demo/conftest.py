import pytest

from onlstm_hf.demo.models import DemoModels
from tests.helpers.demo_server import tiny_checkpoints


@pytest.fixture(scope="session")
def models():
    """The models of the page: a tiny one of each type."""
    return DemoModels(tiny_checkpoints())
