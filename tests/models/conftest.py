import pytest
import torch

from tests.helpers.tiny_models import KINDS, VOCAB_SIZE, Kind, random_rows


@pytest.fixture(params=list(KINDS))
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def model(kind):
    return kind.make()


@pytest.fixture
def rows() -> list[torch.Tensor]:
    """Sentences of different lengths."""
    return random_rows()


@pytest.fixture
def input_ids() -> torch.Tensor:
    """Sentences of the same length."""
    torch.manual_seed(2)
    return torch.randint(VOCAB_SIZE, (3, 6))
