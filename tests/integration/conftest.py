import pytest

from tests.helpers.tiny_models import MODEL_TYPES, Kind

# Markers of the common tests of Transformers, see `tests/helpers/transformers_tests.py`.
MARKS_OF_TRANSFORMERS = (
    *("accelerate_tests", "flash_attn_test", "flash_attn_3_test", "flash_attn_4_test", "generate"),
    *("is_training_test", "torch_compile_test"),
)


def pytest_configure(config):
    for mark in MARKS_OF_TRANSFORMERS:
        config.addinivalue_line("markers", f"{mark}: a mark of the tests that Transformers has for every model")


@pytest.fixture(params=list(MODEL_TYPES))
def kind(request) -> Kind:
    return MODEL_TYPES[request.param]
