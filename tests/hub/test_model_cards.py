"""The released checkpoints are complete Hub repositories with correct cards."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, pipeline

from onlstm_hf.hub.cards.language_model import main_row, model_card
from onlstm_hf.hub.cards.text_descriptions import PENN_TREEBANK
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.scoring.stream import stream_log_likelihood
from onlstm_hf.trees.treebank import preprocessing_of, read_treebank
from onlstm_hf.utils.tokenizer_check import tokenizer_fingerprint
from training.language_models.text_batches import TextLines, encode_text

PROJECT_ROOT = Path(__file__).resolve().parents[2]
# The source archive does not contain the weights of some checkpoints.
CHECKPOINTS = sorted({path.parent for path in (PROJECT_ROOT / "model_cards").glob("*/*.safetensors")})
MAX_WEIGHT_BYTES = 20 * 2**20  # per file

GUM_TEST_GENRES = ("bio", "court", "fiction", "letter", "podcast", "textbook", "voyage")
each_checkpoint = pytest.mark.parametrize("folder", CHECKPOINTS, ids=lambda folder: folder.name)


def load(folder: Path):
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@each_checkpoint
def test_it_loads_and_parses(folder):
    model, tokenizer = load(folder)
    words = ["the", "company", "said", "it", "expects", "to", "report", "a", "loss"]
    if not model.induces_trees:
        with pytest.raises(ValueError, match="induces no trees"):
            model.parse(" ".join(words), tokenizer)
        return
    tree = model.parse(" ".join(words), tokenizer)
    assert list(tree.words) == words
    assert tree.is_binary


@each_checkpoint
def test_generation_begins_with_the_bos_token_of_the_tokenizer(folder):
    model, tokenizer = load(folder)
    assert model.config.bos_token_id == model.generation_config.bos_token_id == tokenizer.bos_token_id
    options = {"max_new_tokens": 4, "do_sample": False}
    begun = model.generate(torch.tensor([[tokenizer.bos_token_id]]), **options)
    assert torch.equal(model.generate(**options), begun)
    assert torch.equal(model.generate(**tokenizer(["", ""], return_tensors="pt"), **options), begun.expand(2, -1))
    write = pipeline("text-generation", model=model, tokenizer=tokenizer)
    assert write("", **options)[0]["generated_text"] == tokenizer.decode(begun[0], skip_special_tokens=True)


@each_checkpoint
def test_the_tokenizer_matches_the_model_and_pads_on_the_left(folder):
    config, tokenizer = AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert config.tokenizer_fingerprint == tokenizer_fingerprint(tokenizer)
    assert tokenizer.padding_side == "left"


@each_checkpoint
def test_its_weights_are_small_and_safe(folder):
    assert not [path for path in folder.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]
    assert max(path.stat().st_size for path in folder.glob("*.safetensors")) <= MAX_WEIGHT_BYTES


@each_checkpoint
def test_the_card_can_be_regenerated_from_the_results(folder):
    results = json.loads((folder / "results.json").read_text())
    card = model_card(folder.name, AutoConfig.from_pretrained(folder), results)
    assert str(card) == (folder / "README.md").read_text()
    # Statements about the Penn Treebank text must appear only on its cards.
    assert ("Published" in card.text) == (results["data"]["text"]["dataset"] == PENN_TREEBANK)


@pytest.mark.slow
@each_checkpoint
def test_parsing_scores_are_reproducible(folder, shared_dir):
    model, tokenizer = load(folder)
    if not model.induces_trees:
        pytest.skip("it induces no trees")
    results = json.loads((folder / "results.json").read_text())
    treebank = results["data"]["treebank"]
    files = {
        "wsj_sample": ["wsj_sample/wsj_0001-0199.mrg"],
        "gum_test_genres": [f"english/gum/{genre}.mrg.gz" for genre in GUM_TEST_GENRES],
    }
    files = files.get(treebank["dataset"], [f"languages/{treebank['file']}"])
    preprocessing = preprocessing_of(None, model.config.treebank_preprocessing)
    trees = read_treebank([shared_dir / "data" / file for file in files], preprocessing)
    gold = [tree for tree in trees if tree.words]
    expected = results["parsing"]["all"][main_row(model.config)]["sentence_f1"]
    parsed = model.parse([list(tree.words) for tree in gold], tokenizer)
    assert score_parses(parsed, gold).sentence_f1 == pytest.approx(expected, abs=5e-4)


@pytest.mark.slow
@each_checkpoint
def test_validation_perplexity_is_reproducible(folder, shared_dir):
    model, tokenizer = load(folder)
    results = json.loads((folder / "results.json").read_text())
    text = results["data"]["text"]
    file = shared_dir / "data" / ("languages" if text["language"] != "en" else "") / text["validation"]
    stream = encode_text(TextLines([file]), tokenizer, "text", "validation")
    expected = results["perplexity"]["validation"]
    assert stream_log_likelihood(model, stream, batch_size=10).perplexity == pytest.approx(expected, rel=1e-3)
