"""The model inside the package."""

from onlstm_hf.utils.checkpoints import PACKED_MODEL
from tests.helpers.folders import contents
from training.pack import main


def test_the_model_inside_the_package_is_the_released_one_in_eight_bits(project_root, tmp_path):
    main([str(project_root / "model_cards" / PACKED_MODEL.name), str(tmp_path / "packed")])
    assert contents(PACKED_MODEL) == contents(tmp_path / "packed")
