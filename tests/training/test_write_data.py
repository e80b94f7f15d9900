"""Generated data as dataset folders."""

import pytest
from huggingface_hub import DatasetCard

from onlstm_hf.logic.listops import generate_listops
from tests.helpers.requirements import library
from training import write_data

datasets = library("datasets")


@pytest.mark.parametrize("data", list(write_data.NUM_EXAMPLES))
def test_a_folder_loads_and_has_a_card(data, tmp_path):
    assert write_data.main([data, str(tmp_path / "first"), "--num", "60", "--seed", "3"]) == 0
    assert write_data.main([data, str(tmp_path / "again"), "--num", "60", "--seed", "3"]) == 0
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    dataset = datasets.load_dataset(str(tmp_path / "first"), cache_dir=str(tmp_path / "cache"))
    card = DatasetCard.load(tmp_path / "first" / "README.md")
    assert card.data.license == "apache-2.0" and card.text.strip().startswith("#")
    splits = {path.stem for path in (tmp_path / "first").iterdir() if path.suffix in (".parquet", ".jsonl")}
    assert dataset.keys() == splits and all(split.num_rows for split in dataset.values())


def test_listops_splits_are_the_generated_expressions(tmp_path):
    assert write_data.main(["listops", str(tmp_path / "data"), "--num", "50", "--seed", "5"]) == 0
    dataset = datasets.load_dataset(str(tmp_path / "data"), cache_dir=str(tmp_path / "cache"))
    texts = [text for split in ("test", "validation", "train") for text in dataset[split]["text"]]
    assert texts == [" ".join(expression.tokens) for expression in generate_listops(50, 5)]
    assert len(set(texts)) == 50


def test_an_existing_folder_is_unchanged(tmp_path, refusal):
    (tmp_path / "mine").write_text("text")
    assert "exists" in refusal(write_data, "listops", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
