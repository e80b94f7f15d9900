import json

import pytest
import release
import torch
import train_lm
from huggingface_hub import ModelCard
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf.toy_english import generate_toy_treebank, write_toy_corpus
from onlstm_hf.treebank import GoldTree

TINY = ["--model.embedding_size=8", "--model.hidden_size=12", "--model.chunk_size=4", "--max_steps", "3"]


@pytest.fixture(scope="module")
def released(tmp_path_factory, project_root):
    folder = tmp_path_factory.mktemp("release")
    corpus = write_toy_corpus(folder / "corpus", num_train=200, num_validation=20, num_test=20)
    recipe = str(project_root / "training" / "recipes" / "quickstart.yaml")
    train_lm.main([recipe, "--dataset", str(corpus), "--output_dir", str(folder / "run"), *TINY])
    trees = generate_toy_treebank(20)
    (folder / "trees.mrg").write_text("\n".join(trees))
    (folder / "text.txt").write_text("\n".join(" ".join(GoldTree.from_bracket(tree).words) for tree in trees))
    text = str(folder / "text.txt")
    options = ["--recipe", "quickstart", "--validation_files", text, "--test_files", text]
    results = release.main(
        [str(folder / "run"), str(folder / "tiny-model"), *options, "--treebank", str(folder / "trees.mrg")]
    )
    return folder / "tiny-model", results


def test_half_precision_weights_load_and_compute_in_float32(released):
    folder, _ = released
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert model.parse("the dog sleeps", AutoTokenizer.from_pretrained(folder)).words == ("the", "dog", "sleeps")


def test_the_folder_is_a_hub_repository_with_its_code(released):
    folder, results = released
    names = {path.name for path in folder.iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "modeling_onlstm.py", "tokenizer.json"} <= names
    assert json.loads((folder / "results.json").read_text()) == results


def test_the_card_has_valid_metadata_and_the_measured_numbers(released):
    folder, results = released
    card = ModelCard.load(folder / "README.md")
    assert (card.data.license, card.data.library_name, card.data.pipeline_tag) == (
        "apache-2.0",
        "transformers",
        "text-generation",
    )
    measured = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert measured["test perplexity"] == round(results["perplexity"]["test"], 2)
    assert f"| PTB test (one stream) | {results['perplexity']['test']:.2f} |" in card.text
    sentence_f1 = results["parsing"]["all"]["layer 2"]["sentence_f1"]
    assert f"| layer 2 | {100 * sentence_f1:.1f} |" in card.text


def test_results_name_no_place_on_the_machine(released):
    folder, _ = released
    for name in ("README.md", "results.json", "config.json"):
        assert str(folder.parent) not in (folder / name).read_text()
