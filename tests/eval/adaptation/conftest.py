import pytest
import torch

from tests.helpers.tiny_models import KINDS, VOCAB_SIZE


@pytest.fixture(params=KINDS)
def model(request):
    return KINDS[request.param].make(eos_token_id=request.module.EOS).double()


@pytest.fixture
def stream(request):
    return torch.randint(VOCAB_SIZE, (request.module.LENGTH,), generator=torch.Generator().manual_seed(1))
