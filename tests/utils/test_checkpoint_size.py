"""Configurations that ask for more than a checkpoint has; those that are right load as before."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from onlstm_hf import build_word_tokenizer
from onlstm_hf.utils.checkpoint_size import check_size
from onlstm_hf.utils.checkpoints import load_checkpoint
from tests.helpers.memory import memory_below
from tests.helpers.tiny_models import KINDS

SENTENCE = "the old cat saw a dog"
HUGE = {"num_softmaxes": 4_000_000, "num_hidden_layers": 10**7, "vocab_size": 10**12, "embedding_size": 10**9}


@pytest.fixture
def checkpoint(tmp_path):
    """Makes a checkpoint with a tokenizer."""

    def save(kind, shard_size="1GB", **options):
        tokenizer = build_word_tokenizer([SENTENCE])
        model = KINDS[kind].make(vocab_size=len(tokenizer), pad_token_id=2, **options)
        model.save_pretrained(tmp_path, max_shard_size=shard_size)
        tokenizer.save_pretrained(tmp_path)
        return tmp_path

    return save


def change(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"tie_word_embeddings": False}, {"num_softmaxes": 3}, {"shard_size": "1KB"}])
def test_checkpoints_that_are_right_load(checkpoint, kind, options):
    folder = checkpoint(kind, **options)
    if "shard_size" in options:
        assert len(list(folder.glob("*.safetensors"))) > 1
    load_checkpoint(str(folder))


TOO_MUCH = [
    *((kind, name) for kind in ("onlstm", "prpn") for name in HUGE),
    ("prpn", "num_residual_blocks"),
    ("prpn", "lookback"),
    ("lstm", "hidden_size"),
]


@pytest.mark.parametrize("kind, field", TOO_MUCH)
def test_more_than_the_files_have_is_refused_before_memory_is_taken(checkpoint, kind, field, monkeypatch):
    folder = checkpoint(kind)
    change(folder, **{field: HUGE.get(field, 10**8)}, layer_sizes=None)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", lambda *_, **__: pytest.fail("it took the memory"))
    with pytest.raises(ValueError, match="cannot load the model"):
        load_checkpoint(str(folder))
    with pytest.raises(ValueError, match="asks for more than the"):
        AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize("field", ["num_hidden_layers", "num_labels"])
@pytest.mark.parametrize("kind", ["onlstm", "prpn", "lstm"])
def test_a_configuration_makes_no_lists_of_as_many_entries_as_it_is_told(checkpoint, kind, field):
    folder = checkpoint(kind)
    change(folder, **{field: 10**8}, layer_sizes=None)
    with memory_below(50_000_000):
        for load in (AutoConfig.from_pretrained, AutoModelForCausalLM.from_pretrained, load_checkpoint):
            with pytest.raises(ValueError, match="asks for more than the"):
                load(str(folder))


def test_the_error_says_what_the_files_have(checkpoint):
    folder = checkpoint("onlstm")
    tensors = load_file(folder / "model.safetensors")
    num_weights = sum(tensor.numel() for tensor in tensors.values())
    change(folder, num_softmaxes=4_000_000)
    with pytest.raises(ValueError, match=f"the {len(tensors)} tensors with {num_weights:,} weights"):
        check_size(folder, AutoModelForCausalLM)
    assert torch.nn.Linear(2, 2).weight.device.type == "cpu"  # nothing of the comparison stays


def test_a_shard_that_is_missing_is_an_error(checkpoint):
    folder = checkpoint("onlstm", shard_size="1KB")
    next(folder.glob("*.safetensors")).unlink()
    with pytest.raises(ValueError, match="cannot load the model"):
        load_checkpoint(str(folder))


def test_a_header_that_lies_is_no_way_around(checkpoint):
    folder = checkpoint("onlstm")
    path = folder / "model.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    name = next(name for name in header if name != "__metadata__")
    header[name]["shape"] = [10**9]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(ValueError, match="cannot load the model"):
        load_checkpoint(str(folder))
    save_file({"weight": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="of its weights"):
        load_checkpoint(str(folder))
