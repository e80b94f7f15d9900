from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf import ONLSTMForCausalLM, PRPNForCausalLM, convert_original_checkpoint, convert_original_state_dict
from onlstm_hf.utils.tokenizer_check import tokenizer_fingerprint
from tests.helpers.original_files import (
    MakesAFolder,
    memory_below,
    mutated,
    mutations,
    onlstm_checkpoint,
    prpn_checkpoint,
    save_as_torch_0_3,
    save_in_legacy_format,
    save_in_zip,
    state_dict_of,
)

FORMATS = {"zip": save_in_zip, "older": save_in_legacy_format, "torch 0.3": save_as_torch_0_3}


def same_weights(model, other) -> bool:
    weights, others = model.state_dict(), other.state_dict()
    return list(weights) == list(others) and all(torch.equal(weights[name], others[name]) for name in weights)


@pytest.fixture
def source(tmp_path):
    save_in_zip(onlstm_checkpoint(), tmp_path / "original.pt")
    return tmp_path / "original.pt"


@pytest.fixture
def text_files(tmp_path):
    """Three text files with the 15 words of the model."""
    texts = {"train": "the <unk> cat\nsat on the mat\n", "valid": "it saw dogs\n", "test": "old dog that N hid it\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    return [tmp_path / f"{name}.txt" for name in texts]


@pytest.mark.parametrize("model_type", ["onlstm", "prpn"])
def test_a_golden_checkpoint_gives_the_logits_of_the_authors_code(shared_dir, tmp_path, model_type):
    golden = shared_dir / "golden" / f"original_{model_type}_checkpoint"
    expected = load_file(f"{golden}_expected.safetensors")
    model, tokenizer = convert_original_checkpoint(f"{golden}.pt")
    assert tokenizer is None
    assert model.config.model_type == model_type
    model.save_pretrained(tmp_path)
    for loaded in (model, AutoModelForCausalLM.from_pretrained(tmp_path).eval()):
        with torch.no_grad():
            logits = loaded(expected["input_ids"].t()).logits.transpose(0, 1)
        torch.testing.assert_close(logits, expected["logits"], rtol=1e-5, atol=1e-6)


ONLSTM = {"layer_sizes": [12, 12, 8], "chunk_size": 4, "tie_word_embeddings": True, "embedding_dropout": 0}
ONLSTM |= {"input_dropout": 0.5, "hidden_dropout": 0.4, "output_dropout": 0.25}
PRPN = {"num_slots": 4, "resolution": 0.25, "hard": False, "lookback": 3}
PRPN |= {"output_dropout": 0.6, "input_dropout": 0.2, "recurrent_dropout": 0}


@pytest.mark.parametrize("save", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(
    ("checkpoint", "model_class", "options"),
    [
        (onlstm_checkpoint(), ONLSTMForCausalLM, ONLSTM | {"weight_dropout": 0.3}),
        (onlstm_checkpoint(weight_dropout=0), ONLSTMForCausalLM, ONLSTM | {"weight_dropout": 0}),
        ([prpn_checkpoint()], PRPNForCausalLM, PRPN),
    ],
    ids=["onlstm", "onlstm without drop-connect", "prpn"],
)
def test_a_checkpoint_in_any_format_converts_like_its_state_dict_and_options(
    tmp_path, save, checkpoint, model_class, options
):
    model_type = model_class.config_class.model_type
    expected = convert_original_state_dict(state_dict_of(checkpoint), model_type)
    save(checkpoint if model_type == "onlstm" else checkpoint[0], tmp_path / "original.pt")
    model, _ = convert_original_checkpoint(tmp_path / "original.pt")
    assert type(model) is model_class and not model.training
    assert same_weights(model, expected)
    assert {name: getattr(model.config, name) for name in options} == options


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_state_dict_gets_the_default_dropouts(tmp_path, suffix):
    state_dict, path = state_dict_of(onlstm_checkpoint()), tmp_path / f"weights{suffix}"
    del state_dict["decoder.weight"]
    duplicate = {"rnn.cells.0.hh._weight": torch.ones(3)}  # in models without drop-connect
    (torch.save if suffix == ".pt" else save_file)(state_dict | duplicate, path)
    model, _ = convert_original_checkpoint(path)
    assert same_weights(model, convert_original_state_dict(state_dict))
    assert model.config.weight_dropout == 0.45


def test_arguments_override_the_file_and_those_of_another_model_are_refused(source):
    config = convert_original_checkpoint(source, weight_dropout=0.2, hidden_dropout=0.1, parse_layer=2)[0].config
    assert (config.weight_dropout, config.hidden_dropout, config.parse_layer) == (0.2, 0.1, 2)
    assert config.output_dropout == 0.25
    with pytest.raises(ValueError, match='is of type "onlstm", which has no num_slots, weight_drop'):
        convert_original_checkpoint(source, num_slots=4, weight_drop=0.1)


def test_half_precision_is_converted_to_float32(tmp_path):
    checkpoint = onlstm_checkpoint()
    checkpoint[0].half()
    save_in_zip(checkpoint, tmp_path / "original.pt")
    model, _ = convert_original_checkpoint(tmp_path / "original.pt")
    assert model.dtype == torch.float32
    assert torch.equal(model.lm_head.weight, checkpoint[0].encoder.weight.float())


def test_the_tokenizer_has_the_ids_of_the_authors_code(source, text_files, tmp_path):
    model, tokenizer = convert_original_checkpoint(source, text_files)
    assert model.config.tokenizer_fingerprint == tokenizer_fingerprint(tokenizer)
    words = ["the", "<unk>", "cat", "<eos>", "sat", "on", "mat", "it", "saw", "dogs", "old", "dog", "that", "N", "hid"]
    assert tokenizer.convert_tokens_to_ids(words) == list(range(15))
    assert (model.config.eos_token_id, model.config.pad_token_id) == (3, 3)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "out")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert loaded("zebra sat\nthe dog")["input_ids"] == [1, 4, 0, 11]
    assert str(AutoModelForCausalLM.from_pretrained(tmp_path / "out").parse("the cat sat", loaded))


def test_a_single_text_file_is_enough(source, tmp_path, text_files):
    (tmp_path / "all.txt").write_text("".join(path.read_text() for path in text_files))
    together = convert_original_checkpoint(source, tmp_path / "all.txt")[1]
    assert together.get_vocab() == convert_original_checkpoint(source, text_files)[1].get_vocab()


def test_the_text_must_have_as_many_words_as_the_model(source, text_files, tmp_path):
    with pytest.raises(ValueError, match=r"train\.txt have 7 different words .* the model 15; give its training"):
        convert_original_checkpoint(source, text_files[:1])
    (tmp_path / "other.txt").write_text(" ".join("abcdefghijklmn"))
    with pytest.raises(ValueError, match="the text has no <unk>"):
        convert_original_checkpoint(source, tmp_path / "other.txt")
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        convert_original_checkpoint(source, [tmp_path / "missing.txt"])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "another object in place of a module"),
        ([1, 2], "another object in place of a module"),
        ({"encoder.weight": "text"}, "values other than named tensors"),
        ({"encoder.weight": torch.ones(2), "nested": {"a": torch.ones(1)}}, "values other than named tensors"),
        ({1: torch.ones(1)}, "tensors have invalid names"),
        ({"\x1b[31m": torch.ones(1)}, "tensors have invalid names"),
        ({"": torch.ones(1)}, "tensors have invalid names"),
        ({}, "neither an ON-LSTM nor a PRPN of the authors' code: nothing"),
        ({"bert.weight": torch.ones(2)}, "neither an ON-LSTM nor a PRPN of the authors' code: bert.weight"),
        ({"rnn.cells.0.ih.0.weight": torch.ones(2)}, "missing"),
        ({"rnn.cells.999999999999.hh.weight": torch.ones(2)}, "missing"),
        # A small file whose layers all share one tensor could otherwise create a model of any size.
        (
            dict.fromkeys((f"rnn.cells.{n}.hh.weight" for n in range(1000)), torch.zeros(100_000)),
            "share the same numb",
        ),
        (torch.nn.Linear(2, 2), "neither an ON-LSTM nor a PRPN"),
        (torch.optim.SGD([torch.ones(1)], lr=1.0), "another object in place of a module"),
    ],
)
def test_other_content_is_refused(tmp_path, value, message):
    torch.save(value, tmp_path / "original.pt")
    with pytest.raises(ValueError, match=message):
        convert_original_checkpoint(tmp_path / "original.pt")


def test_unreadable_attributes_must_be_given_as_options(tmp_path):
    checkpoint = onlstm_checkpoint()
    checkpoint[0].rnn.cells[1].hh.dropout = 0.7
    checkpoint[0].dropouti = "much"
    save_in_zip(checkpoint, path := tmp_path / "original.pt")
    with pytest.raises(ValueError, match="give input_dropout"):
        convert_original_checkpoint(path)
    with pytest.raises(ValueError, match=r"whose rnn\.cells\.\*\.hh\.dropout should be one number; give weight"):
        convert_original_checkpoint(path, input_dropout=0.1)
    assert convert_original_checkpoint(path, input_dropout=0.1, weight_dropout=0.2)[0].config.weight_dropout == 0.2


def test_an_embedding_that_is_not_a_matrix_is_refused(tmp_path, text_files):
    state_dict = state_dict_of(onlstm_checkpoint())
    for embedding in (torch.tensor(1.0), torch.ones(15), None):
        state_dict.pop("encoder.weight", None)
        torch.save(state_dict | ({} if embedding is None else {"encoder.weight": embedding}), tmp_path / "original.pt")
        for files in (None, text_files):
            with pytest.raises(ValueError):
                convert_original_checkpoint(tmp_path / "original.pt", files)


def test_self_referential_modules_are_refused(tmp_path):
    deep, wide = torch.nn.Module(), torch.nn.Module()
    deep._modules["a"] = deep
    wide.__dict__["a" * 100_000] = 1  # a name that must not be copied for each module
    for name in "abcdefgh":
        wide._modules[name] = wide
    for module in (deep, wide):
        torch.save(module, tmp_path / "original.pt")
        with memory_below(20_000_000), pytest.raises(ValueError, match="too many modules, or they contain themselves"):
            convert_original_checkpoint(tmp_path / "original.pt")


def test_inconsistent_sizes_that_imply_a_huge_tensor_are_refused(tmp_path):
    """A long embedding and a wide layer together would require an input projection of 80 GB."""
    state_dict = state_dict_of(onlstm_checkpoint(num_layers=1, embedding_size=400))
    state_dict["encoder.weight"], state_dict["decoder.weight"] = torch.zeros(1, 10_000_000), torch.zeros(1, 400)
    torch.save(state_dict, tmp_path / "original.pt")
    with pytest.raises(ValueError, match="do not fit together"):
        convert_original_checkpoint(tmp_path / "original.pt")


@pytest.mark.parametrize("save", FORMATS.values(), ids=FORMATS)
def test_a_checkpoint_with_a_malicious_part_is_refused(tmp_path, monkeypatch, save):
    checkpoint = onlstm_checkpoint()
    checkpoint[1].stats["now"] = [MakesAFolder(tmp_path / "was-run")]
    save(checkpoint, tmp_path / "original.pt")
    with pytest.raises(ValueError, match=r"original\.pt: the pickle calls '\w+\.mkdir'; code .* is never run"):
        convert_original_checkpoint(tmp_path / "original.pt")
    assert not (tmp_path / "was-run").exists()


@pytest.fixture(scope="module", params=["onlstm", "prpn"])
def file_content(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "original.pt"
    if request.param == "onlstm":
        checkpoint = onlstm_checkpoint(vocab_size=5, embedding_size=2, hidden_size=2, chunk_size=1)
    else:
        checkpoint = prpn_checkpoint(vocab_size=5, embedding_size=2, hidden_size=2)
    save_as_torch_0_3(checkpoint, path)
    return path.read_bytes()


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changes=mutations())
def test_damaged_checkpoints_are_converted_or_refused(tmp_path, file_content, changes):
    (tmp_path / "original.pt").write_bytes(mutated(file_content, changes))
    with suppress(ValueError):
        convert_original_checkpoint(tmp_path / "original.pt")
