import json
import re
import shlex
import shutil
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM, build_word_tokenizer, convert_original_state_dict
from onlstm_hf.cli import main as command_line
from onlstm_hf.cli.main import main
from onlstm_hf.scoring.sentences import score_sentences
from onlstm_hf.utils import checkpoints
from tests.helpers.original_files import MakesAFolder, onlstm_checkpoint, prpn_checkpoint, save_in_zip
from tests.helpers.tiny_models import MODEL_TYPES

TEXT = ["The cat sat on the mat .", "it saw 2 dogs", "dogs", "the old dog that the cat saw sat on the old mat"]
WORDS = ["<eos>", "<unk>", "the", "cat", "sat", "on", "mat", ".", "it", "saw", "dogs", "old", "dog", "that", "N"]


def random_model(seed=0, **fields):
    """A model whose weights are large enough for its layers to disagree on the trees."""
    torch.manual_seed(seed)
    config = {"vocab_size": len(WORDS), "embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2}
    model = ONLSTMForCausalLM(ONLSTMConfig(**config, chunk_size=2, eos_token_id=0, **fields)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    return model


@pytest.fixture(scope="module")
def tokenizer():
    return build_word_tokenizer(vocabulary=WORDS, lowercase=True, digits_to_n=True, pad_token="<eos>")


@pytest.fixture(scope="module")
def model():
    return random_model()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, model, tokenizer):
    folder = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def broken_checkpoint(checkpoint, tmp_path):
    """A copy of the checkpoint for a test to break."""
    return Path(shutil.copytree(checkpoint, tmp_path / "broken"))


@pytest.fixture
def run(capsys):
    """Runs the command and returns what it wrote; it must succeed."""

    def run(*arguments):
        assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture
def error_of(capsys):
    """Runs the command and returns its error, which must be one friendly line."""

    def error_of(*arguments):
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 1
        error = capsys.readouterr().err
        assert error.startswith("onlstm-hf: ")
        assert error.count("\n") == 1
        assert "Traceback" not in error
        return error

    return error_of


def type_in(monkeypatch, content: bytes):
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(content)))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_parse_writes_the_trees_of_the_model_in_the_order_of_the_input(run, checkpoint, model, tokenizer):
    expected = [tree.to_bracket() for tree in model.parse(TEXT, tokenizer)]
    assert run("parse", *TEXT, "--model", checkpoint).splitlines() == expected
    assert run("parse", *TEXT, "--model", checkpoint, "--batch-size", 2).splitlines() == expected
    assert run("parse", *TEXT, "--model", checkpoint, "--max-length", 3).splitlines() == expected


@pytest.mark.parametrize(
    "options",
    [{"layer": 0}, {"layer": 1}, {"branching_bias": "none"}, {"units": "tokens"}, {"layer": 0, "units": "tokens"}],
)
def test_options_of_parse_reach_the_model(run, checkpoint, model, tokenizer, options):
    flags = [flag for name, value in options.items() for flag in (f"--{name.replace('_', '-')}", value)]
    expected = [tree.to_bracket() for tree in model.parse(TEXT, tokenizer, **options)]
    assert run("parse", *TEXT, "--model", checkpoint, *flags).splitlines() == expected


def test_the_two_layers_of_the_test_model_disagree(model, tokenizer):
    assert model.parse(TEXT, tokenizer, layer=0) != model.parse(TEXT, tokenizer, layer=1)


def test_text_file_and_standard_input_give_the_same(run, checkpoint, tmp_path, monkeypatch):
    content = "\ufeff" + "\r\n".join(TEXT)
    (tmp_path / "text").write_text(content, encoding="utf-8", newline="")
    expected = run("parse", *TEXT, "--model", checkpoint)
    assert run("parse", "--file", tmp_path / "text", "--model", checkpoint) == expected
    for source in ([], ["-"], ["--file", "-"]):
        type_in(monkeypatch, content.encode())
        assert run("parse", *source, "--model", checkpoint) == expected


def test_empty_lines_keep_output_and_input_aligned(run, checkpoint, monkeypatch):
    type_in(monkeypatch, b"\nthe cat\n\n")
    assert run("parse", "--model", checkpoint) == "()\n(the cat)\n()\n"


def test_unknown_words_and_emoji_stand_in_the_tree_as_typed(run, checkpoint):
    assert run("parse", "Ein 🐈 (klein)", "--model", checkpoint, "--format", "jsonl").startswith(
        '{"words": ["Ein", "🐈", "(klein)"]'
    )


def test_json_lines_have_words_bracket_spans_and_distances(run, checkpoint, model, tokenizer):
    lines = [json.loads(line) for line in run("parse", *TEXT, "--model", checkpoint, "--format", "jsonl").splitlines()]
    for fields, tree in zip(lines, model.parse(TEXT, tokenizer), strict=True):
        assert fields["words"] == list(tree.words)
        assert fields["bracket"] == tree.to_bracket()
        assert fields["spans"] == [list(span) for span in tree.spans()]
        assert fields["distances"] == pytest.approx(tree.distances, abs=1e-6)


def test_tree_drawings_fit_the_terminal(run, checkpoint, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    drawings = run("parse", *TEXT, "--model", checkpoint, "--format", "tree")
    assert max(map(len, drawings.splitlines())) <= 40
    assert "┌" in drawings and "mat" in drawings
    assert drawings.endswith("\n\n")


def test_svg_shows_the_tree_and_the_distances_of_every_layer(run, checkpoint, model, tokenizer):
    svg = run("parse", TEXT[0], "--model", checkpoint, "--format", "svg", "--layer", 0)
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert model.parse(TEXT[0], tokenizer, layer=0).to_bracket() in svg
    assert "layer 1, which makes the tree" in svg and "layer 2" in svg
    for layer in (0, 1):
        first_distance = model.parse(TEXT[0], tokenizer, layer=layer).distances[0]
        assert f"The: {first_distance:.4g}" in svg


def test_a_prpn_is_parsed_drawn_and_scored(run, tokenizer, tmp_path):
    model = MODEL_TYPES["prpn"].make(vocab_size=len(WORDS), eos_token_id=0)
    model.save_pretrained(tmp_path / "prpn")
    tokenizer.save_pretrained(tmp_path / "prpn")
    checkpoint = ("--model", tmp_path / "prpn")
    for options, hard in (((), False), (("--hard",), True)):
        trees = model.parse(TEXT, tokenizer, hard=hard)
        assert run("parse", *TEXT, *checkpoint, *options).splitlines() == [tree.to_bracket() for tree in trees]
    assert "syntactic distances" in run("parse", TEXT[0], *checkpoint, "--format", "svg")
    (score,) = score_sentences(model, tokenizer, TEXT[:1], 1)
    assert f"{score.total().total_log_likelihood:.2f}" in run("score", TEXT[0], *checkpoint)


def test_pictures_of_several_sentences_are_numbered_in_a_new_folder(run, checkpoint, tmp_path):
    run("parse", *TEXT, "--model", checkpoint, "--format", "svg", "--output", tmp_path / "figures", "--batch-size", 3)
    assert names_in(tmp_path) == ["figures"]
    assert names_in(tmp_path / "figures") == ["1.svg", "2.svg", "3.svg", "4.svg"]
    assert "dogs" in (tmp_path / "figures" / "3.svg").read_text(encoding="utf-8")


def test_a_picture_can_be_png(run, checkpoint, tmp_path):
    pytest.importorskip("resvg_py")
    run("parse", TEXT[0], "--model", checkpoint, "--format", "svg", "--output", tmp_path / "tree.png")
    assert (tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")


def test_one_picture_of_several_sentences_is_refused(error_of, checkpoint, tmp_path):
    message = error_of("parse", *TEXT, "--model", checkpoint, "--format", "svg", "--output", tmp_path / "tree.svg")
    assert "for several name a new folder" in message
    assert names_in(tmp_path) == []


def test_output_goes_to_a_new_file(run, error_of, checkpoint, tmp_path):
    output = tmp_path / "trees"
    assert run("parse", "the cat", "--model", checkpoint, "--output", output) == ""
    assert output.read_text() == "(the cat)\n"
    assert "exists already" in error_of("parse", "the dog", "--model", checkpoint, "--output", output)
    assert "does not exist" in error_of("parse", "dog", "--model", checkpoint, "--output", tmp_path / "no" / "trees")
    assert output.read_text() == "(the cat)\n"
    assert names_in(tmp_path) == ["trees"]


def test_nothing_is_left_of_an_output_that_fails_midway(error_of, checkpoint, tmp_path, monkeypatch):
    type_in(monkeypatch, b"the cat\nthe dog\n\xff\n")
    message = error_of("parse", "--model", checkpoint, "--batch-size", 1, "--output", tmp_path / "trees")
    assert "byte 0xff in line 3" in message
    assert names_in(tmp_path) == []


def test_the_batch_size_is_that_of_the_model_calls(run, checkpoint, tmp_path, monkeypatch):
    seen, syntactic_distances = [], ONLSTMForCausalLM.syntactic_distances

    def spy(self, input_ids, **options):
        seen.append(len(input_ids))
        return syntactic_distances(self, input_ids, **options)

    monkeypatch.setattr(ONLSTMForCausalLM, "syntactic_distances", spy)
    path = tmp_path / "sentences.txt"
    path.write_text("the cat sat\n" * 100)
    run("parse", "--file", path, "--model", checkpoint, "--batch-size", 100)
    assert seen == [100]


def test_trees_leave_a_pipe_batch_by_batch_and_a_closed_pipe_is_no_error(checkpoint):
    arguments = ["parse", "--model", str(checkpoint), "--batch-size", "2"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", "onlstm_hf.cli.main", *arguments], **pipes) as process:
        process.stdin.write(b"the cat\nthe dog\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == [b"(the cat)\n", b"(the dog)\n"]
        process.stdout.close()
        process.stdin.write(b"the cat\nthe dog\n")
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("arguments", [[], ["parse"], ["score"], ["convert"]])
def test_every_example_of_the_help_is_a_valid_command(capsys, arguments):
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--help"])
    assert exit_.value.code == 0
    examples = re.findall(r"^  (?:.*\| )?onlstm-hf (.*?)(?: \|.*)?$", capsys.readouterr().out, re.MULTILINE)
    assert examples
    for example in examples:
        command_line.build_parser().parse_args(shlex.split(example))


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"onlstm-hf {command_line.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["pares", "text"],
        ["parse", "text", "--file", "file"],
        ["parse", "text", "--format", "xml"],
        ["parse", "text", "--batch-size", "0"],
        ["parse", "text", "--layer", "second"],
        ["convert", "source"],
        ["convert", "source", "out", "--model-type", "gpt2"],
    ],
)
def test_wrong_usage_exits_with_2(capsys, arguments):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: onlstm-hf" in capsys.readouterr().err


def test_interruption_exits_with_130(monkeypatch, capsys):
    def interrupt(name, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "load_checkpoint", interrupt)
    assert main(["parse", "text", "--model", "any"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["parse", "score"])
def test_bad_text_is_refused_before_a_model_is_loaded(error_of, tmp_path, monkeypatch, command):
    monkeypatch.setattr(command_line, "load_checkpoint", None)
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_bytes(b"\n \n")
    binary.write_bytes(b"good\nline\n\xff\xfe\n")
    assert "there is no file" in error_of(command, "--file", tmp_path / "missing")
    assert "is a folder" in error_of(command, "--file", tmp_path)
    assert "empty" in error_of(command, "--file", empty)
    assert "binary is not UTF-8: byte 0xff in line 3" in error_of(command, "--file", binary)


def test_empty_text_is_refused(error_of, checkpoint, monkeypatch):
    assert "the text is empty" in error_of("parse", " ", "--model", checkpoint)
    type_in(monkeypatch, b"")
    assert "standard input is empty" in error_of("score", "--model", checkpoint)


def test_an_unknown_layer_is_refused(error_of, checkpoint):
    assert "layer 2 does not exist" in error_of("parse", "the cat", "--model", checkpoint, "--layer", 2)
    message = error_of("parse", "the cat", "--model", checkpoint, "--layer", -1, "--format", "svg")
    assert "layer -1 does not exist" in message


def test_the_model_is_named_by_the_environment_or_lies_in_the_current_folder(
    run, error_of, checkpoint, tmp_path, monkeypatch
):
    monkeypatch.delenv("ONLSTM_MODEL", raising=False)
    monkeypatch.setattr(checkpoints, "DEFAULT_MODEL", Path("model_cards", "test-model"))
    monkeypatch.chdir(tmp_path)
    message = error_of("parse", "the cat")
    assert "--model" in message and "ONLSTM_MODEL" in message and "quickstart" in message

    shutil.copytree(checkpoint, tmp_path / "model_cards" / "test-model")
    assert run("parse", "the cat") == "(the cat)\n"
    monkeypatch.setenv("ONLSTM_MODEL", str(tmp_path / "other"))
    assert "other" in error_of("parse", "the cat")


def test_missing_checkpoints_are_named(error_of, tmp_path):
    assert "there is no checkpoint folder nowhere" in error_of("parse", "cat", "--model", "nowhere")
    assert "no config.json" in error_of("parse", "cat", "--model", tmp_path)


def test_a_checkpoint_without_tokenizer_is_refused(error_of, broken_checkpoint):
    for path in broken_checkpoint.glob("tokenizer*"):
        path.unlink()
    assert "has no tokenizer" in error_of("parse", "cat", "--model", broken_checkpoint)


@pytest.mark.parametrize(
    "file, expected",
    [("model.safetensors", "cannot load the model"), ("config.json", "JSON"), ("tokenizer.json", "the tokenizer")],
)
def test_a_corrupt_file_of_a_checkpoint_is_refused(error_of, broken_checkpoint, file, expected):
    (broken_checkpoint / file).write_bytes(b"\x00corrupt" * 20)
    assert expected in error_of("parse", "cat", "--model", broken_checkpoint)


def test_weights_that_are_missing_or_not_finite_are_refused(error_of, broken_checkpoint):
    weights = load_file(broken_checkpoint / "model.safetensors")
    name = "model.layers.0.recurrent_projection.bias"
    weights[name][0] = float("nan")
    save_file(weights, broken_checkpoint / "model.safetensors", {"format": "pt"})
    assert f"NaN or infinity ({name})" in error_of("score", "cat", "--model", broken_checkpoint)
    del weights[name]
    save_file(weights, broken_checkpoint / "model.safetensors", {"format": "pt"})
    assert f"lacks 1 of its weights, for instance {name}" in error_of("score", "cat", "--model", broken_checkpoint)


def test_a_tokenizer_that_does_not_fit_is_refused(error_of, broken_checkpoint):
    build_word_tokenizer(vocabulary=[*WORDS, "more"]).save_pretrained(broken_checkpoint)
    assert "does not fit the model: it has 17 tokens" in error_of("parse", "cat", "--model", broken_checkpoint)


def test_a_foreign_model_is_refused(error_of, broken_checkpoint):
    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=4, n_layer=1, n_head=1)
    GPT2LMHeadModel(config).save_pretrained(broken_checkpoint)
    assert "type gpt2" in error_of("parse", "cat", "--model", broken_checkpoint)


def test_score_prints_a_row_a_sentence_and_the_total(run, checkpoint, model, tokenizer):
    header, *rows, total = run("score", *TEXT, "--model", checkpoint, "--batch-size", 3).splitlines()
    scores = [score.total() for score in score_sentences(model, tokenizer, TEXT)]
    for row, text, score in zip(rows, TEXT, scores, strict=True):
        log_probability, num_tokens, perplexity, words = row.split(maxsplit=3)
        assert float(log_probability) == pytest.approx(score.total_log_likelihood, abs=1e-3)
        assert int(num_tokens) == len(text.split()) + 1
        assert float(perplexity) == pytest.approx(score.perplexity, rel=1e-3, abs=0.01)
        assert words == text
    assert total.endswith("total (4 sentences)")
    assert float(total.split()[0]) == pytest.approx(sum(score.total_log_likelihood for score in scores), abs=1e-3)
    assert int(total.split()[1]) == sum(score.num_tokens for score in scores)


def test_score_as_json_lines_has_every_token(run, checkpoint):
    lines = run("score", *TEXT, "--model", checkpoint, "--format", "jsonl").splitlines()
    *rows, last = [json.loads(line) for line in lines]
    assert [row["text"] for row in rows] == TEXT
    assert rows[1]["tokens"] == ["it", "saw", "N", "dogs", "<eos>"]
    for row in rows:
        assert row["log_probability"] == pytest.approx(sum(row["log_probabilities"]))
        assert row["num_tokens"] == len(row["log_probabilities"])
    assert last["total"]["num_sentences"] == 4
    assert last["total"]["log_probability"] == pytest.approx(sum(row["log_probability"] for row in rows))


def original_state_dict():
    """Weights under the authors' names: 2 layers of 12 and 8 units in chunks of 2."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"encoder.weight": (len(WORDS), 8), "decoder.bias": (len(WORDS),)}
    for layer, (input_size, size) in enumerate([(8, 12), (12, 8)]):
        num_rows = 5 * size
        shapes |= {
            f"rnn.cells.{layer}.ih.0.weight": (num_rows, input_size),
            f"rnn.cells.{layer}.ih.0.bias": (num_rows,),
            f"rnn.cells.{layer}.hh.weight": (num_rows, size),
            f"rnn.cells.{layer}.hh.bias": (num_rows,),
        }
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def baseline(tokenizer, tmp_path):
    """The checkpoint of a model that induces no trees."""
    model = MODEL_TYPES["rnn"].make(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    model.save_pretrained(tmp_path / "baseline")
    tokenizer.save_pretrained(tmp_path / "baseline")
    return tmp_path / "baseline"


@pytest.mark.parametrize("format", ["brackets", "jsonl", "svg"])
def test_parsing_with_a_model_that_induces_no_trees_is_refused(error_of, baseline, tmp_path, format):
    output = tmp_path / "output.svg"
    error = error_of("parse", "--model", baseline, "--format", format, "--output", output, "the cat sat")
    assert "this model induces no trees" in error
    assert not output.exists()


def test_a_model_that_induces_no_trees_scores_sentences(run, baseline):
    assert "the cat sat" in run("score", "--model", baseline, "the cat sat")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(original_state_dict(), path)
    return path


@pytest.fixture
def vocabulary_files(tmp_path):
    """Two texts whose words have the ids of `WORDS`, but for `<eos>`, which ends the first line."""
    (tmp_path / "train.txt").write_text(" the <unk> cat \n sat on the mat . \n")
    (tmp_path / "valid.txt").write_text(" it saw dogs the \n old dog that N \n")
    return [tmp_path / "train.txt", tmp_path / "valid.txt"]


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_converted_checkpoint_loads_with_from_pretrained(run, tmp_path, source, vocabulary_files, suffix):
    if suffix == ".pt":
        torch.save(load_file(source), source := tmp_path / "weights.pt")
    out = tmp_path / "out"
    run("convert", source, out, "--weight-dropout", 0.3, "--vocab-from", *vocabulary_files)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    expected = convert_original_state_dict(original_state_dict(), weight_dropout=0.3)
    assert model.config.weight_dropout == 0.3
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in expected.state_dict().items())
    assert tokenizer("the cat\nmat zebra")["input_ids"] == [0, 2, 6, 1]
    assert tokenizer.eos_token_id == model.config.eos_token_id == 3
    assert not list(tmp_path.glob(".*"))
    assert run("parse", "the cat", "--model", out) == "(the cat)\n"


def test_a_checkpoint_can_be_converted_without_its_vocabulary(run, tmp_path, source):
    assert "--vocab-from" in run("convert", source, tmp_path / "out")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.vocab_size == len(WORDS)


def test_conversion_overwrites_nothing(error_of, tmp_path, source):
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").touch()
    assert "exists already" in error_of("convert", source, out)
    assert names_in(out) == ["precious"]


def test_a_vocabulary_of_another_size_is_refused(error_of, tmp_path, source, vocabulary_files):
    message = error_of("convert", source, tmp_path / "out", "--vocab-from", vocabulary_files[0])
    assert "have 8 different words" in message and "the model 15" in message
    assert not (tmp_path / "out").exists()


def test_a_whole_checkpoint_of_the_authors_code_is_converted(run, tmp_path, vocabulary_files):
    save_in_zip(onlstm_checkpoint(), tmp_path / "PTB.pt")
    printed = run("convert", tmp_path / "PTB.pt", tmp_path / "out", "--vocab-from", *vocabulary_files)
    assert re.search(r"ONLSTMForCausalLM, [\d,]+ parameters, 15 words, with its tokenizer", printed)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (model.config.weight_dropout, model.config.input_dropout) == (0.3, 0.5)
    assert run("parse", "the cat", "--model", tmp_path / "out") == "(the cat)\n"
    run("convert", tmp_path / "PTB.pt", tmp_path / "other", "--weight-dropout", 0.2)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "other").config.weight_dropout == 0.2


def test_a_prpn_is_converted(run, tmp_path, vocabulary_files):
    save_in_zip(prpn_checkpoint(), tmp_path / "model_LM.pt")
    printed = run("convert", tmp_path / "model_LM.pt", tmp_path / "out", "--vocab-from", *vocabulary_files)
    assert re.search(r"PRPNForCausalLM, [\d,]+ parameters, 15 words, with its tokenizer", printed)
    config = AutoModelForCausalLM.from_pretrained(tmp_path / "out").config
    assert (config.num_slots, config.resolution, config.hard) == (4, 0.25, False)
    assert run("parse", "the cat", "--model", tmp_path / "out") == "(the cat)\n"


def test_what_the_state_dict_of_a_prpn_does_not_tell_can_be_given(run, error_of, tmp_path, source):
    torch.save(prpn_checkpoint().state_dict(), tmp_path / "weights.pt")
    run("convert", tmp_path / "weights.pt", tmp_path / "defaults")
    flags = ["--num-slots", 4, "--resolution", 0.25, "--no-hard"]
    run("convert", tmp_path / "weights.pt", tmp_path / "given", *flags)
    expected = {"defaults": (15, 0.1, True), "given": (4, 0.25, False)}
    for name, values in expected.items():
        config = AutoModelForCausalLM.from_pretrained(tmp_path / name).config
        assert (config.num_slots, config.resolution, config.hard) == values
    assert 'type "onlstm", which has no num_slots' in error_of("convert", source, tmp_path / "out", "--num-slots", 4)


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_file_that_would_run_code_is_refused_and_not_run(error_of, tmp_path, is_zip):
    source = tmp_path / "weights.pt"
    malicious = {"model": MakesAFolder(tmp_path / "was-run")}
    torch.save(malicious, source, _use_new_zipfile_serialization=is_zip)
    message = error_of("convert", source, tmp_path / "out")
    assert str(source) in message and "mkdir" in message and "never run" in message
    assert names_in(tmp_path) == ["weights.pt"]


def test_nothing_is_left_of_a_conversion_that_fails(error_of, tmp_path, source, vocabulary_files, monkeypatch):
    def fail(*arguments, **options):
        raise OSError("the disk is full")

    before = names_in(tmp_path)
    assert "there is no file" in error_of("convert", source, tmp_path / "out", "--vocab-from", tmp_path / "absent.txt")
    assert "is a folder" in error_of("convert", source, tmp_path / "out", "--vocab-from", tmp_path)
    assert "does not exist" in error_of("convert", source, tmp_path / "absent" / "out")
    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.save_pretrained", fail)
    assert "disk is full" in error_of("convert", source, tmp_path / "out", "--vocab-from", *vocabulary_files)
    assert names_in(tmp_path) == before


def test_the_help_says_that_nothing_in_the_file_is_run(run, capsys):
    with pytest.raises(SystemExit):
        run("convert", "--help")
    assert "nothing in the file is run" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_a_corrupt_source_is_refused(error_of, tmp_path, name):
    (tmp_path / name).write_bytes(b"\x00corrupt" * 20)
    assert name in error_of("convert", tmp_path / name, tmp_path / "out")
    assert "there is no file" in error_of("convert", tmp_path / f"missing-{name}", tmp_path / "out")


def test_foreign_or_damaged_weights_are_refused(error_of, tmp_path):
    source = tmp_path / "weights.pt"
    torch.save([torch.zeros(2)], source)
    assert "holds no model of the authors' code" in error_of("convert", source, tmp_path / "out")
    torch.save({"bert.weight": torch.zeros(2)}, source)
    assert "bert.weight" in error_of("convert", source, tmp_path / "out")
    damaged = original_state_dict()
    damaged["decoder.bias"][0] = float("inf")
    torch.save(damaged, source)
    assert "NaN or infinity" in error_of("convert", source, tmp_path / "out")
    assert "weight_dropout" in error_of("convert", source, tmp_path / "out", "--weight-dropout", 1.5)
    assert names_in(tmp_path) == ["weights.pt"]
