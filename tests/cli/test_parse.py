import copy
import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import torch

from onlstm_hf import ONLSTMForCausalLM
from onlstm_hf.cli.main import main
from onlstm_hf.scoring.sentences import score_sentences
from tests.helpers.command_line import CONSOLE_SCRIPT, TEXT, WORDS, type_in
from tests.helpers.folders import names_in
from tests.helpers.requirements import library
from tests.helpers.tiny_models import MODEL_TYPES


def test_parse_writes_the_trees_of_the_model_in_input_order(run, checkpoint, model, tokenizer):
    expected = [tree.to_bracket() for tree in model.parse(TEXT, tokenizer)]
    for options in ([], ["--batch-size", 2], ["--max-length", 3]):
        assert run("parse", *TEXT, "--model", checkpoint, *options).splitlines() == expected


@pytest.mark.parametrize(
    "options",
    [{"layer": 0}, {"layer": 1}, {"branching_bias": "none"}, {"units": "tokens"}, {"layer": 0, "units": "tokens"}],
)
def test_options_of_parse_reach_the_model(run, checkpoint, model, tokenizer, options):
    flags = [flag for name, value in options.items() for flag in (f"--{name.replace('_', '-')}", value)]
    expected = [tree.to_bracket() for tree in model.parse(TEXT, tokenizer, **options)]
    assert run("parse", *TEXT, "--model", checkpoint, *flags).splitlines() == expected


def test_weights_have_the_requested_precision(run, checkpoint, model, tokenizer):
    lines = run("parse", *TEXT, "--model", checkpoint, "--format", "jsonl", "--dtype", "bfloat16").splitlines()
    expected = copy.deepcopy(model).to(torch.bfloat16).parse(TEXT, tokenizer)
    assert [json.loads(line)["distances"] for line in lines] == [list(tree.distances) for tree in expected]


def test_empty_lines_keep_output_and_input_aligned(run, checkpoint, monkeypatch):
    type_in(monkeypatch, b"\nthe cat\n\n")
    assert run("parse", "--model", checkpoint) == "()\n(the cat)\n()\n"


def test_several_sentences_in_a_line_give_a_warning_or_are_split(run, checkpoint, capsys):
    text = "The cat sat. The dog barked!"
    assert main(["parse", text, "--model", str(checkpoint)]) == 0
    written = capsys.readouterr()
    assert len(written.out.splitlines()) == 1
    assert "line 1 has 2 sentences" in written.err
    lines = run("parse", "the cat", text, "--split-sentences", "--model", checkpoint, "--format", "jsonl").splitlines()
    records = [json.loads(line) for line in lines]
    assert [(record["line"], record["start"]) for record in records] == [(1, 0), (2, 0), (2, 13)]
    assert [record["text"] for record in records] == ["the cat", "The cat sat.", "The dog barked!"]


def test_a_file_name_as_text_gives_a_hint_to_the_file_option(checkpoint, tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("the cat\n", encoding="utf-8")
    assert main(["parse", str(path), "--model", str(checkpoint)]) == 0
    assert f"--file {path}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["parse", "score"])
def test_many_unknown_words_give_a_warning(command, checkpoint, capsys):
    assert main([command, "the zebra", "--model", str(checkpoint)]) == 0
    assert "50.0 %" in capsys.readouterr().err
    assert main([command, "zebra zebras", "--model", str(checkpoint)]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert main([command, "the cat", "--model", str(checkpoint)]) == 0
    assert "unknown" not in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "svg", "--output", "tree.jpg"], "must end in .svg, .png"),
        (["--format", "svg", "--output", "tree.svg"], "for several name a new folder"),
        (["--language", "de"], "--split-sentences"),
    ],
)
def test_wrong_options_write_nothing(error_of, checkpoint, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert message in error_of("parse", *TEXT, "--model", checkpoint, *options)
    assert names_in(tmp_path) == []


def test_a_picture_can_be_png(run, checkpoint, tmp_path):
    library("resvg_py")
    run("parse", TEXT[0], "--model", checkpoint, "--format", "svg", "--output", tmp_path / "tree.png")
    assert (tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")


def test_output_goes_to_a_new_file(run, error_of, checkpoint, tmp_path):
    output = tmp_path / "trees"
    assert run("parse", "the cat", "--model", checkpoint, "--output", output) == ""
    assert output.read_text() == "(the cat)\n"
    assert "exists already" in error_of("parse", "the dog", "--model", checkpoint, "--output", output)
    assert "does not exist" in error_of("parse", "dog", "--model", checkpoint, "--output", tmp_path / "no" / "trees")
    assert output.read_text() == "(the cat)\n"
    assert names_in(tmp_path) == ["trees"]


@pytest.mark.parametrize("format", ["brackets", "svg"])
def test_a_bad_line_or_an_interruption_leaves_no_output_file(error_of, checkpoint, tmp_path, monkeypatch, format):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    command = ["parse", "--model", str(checkpoint), "--format", format, "--output", str(tmp_path / "trees")]
    type_in(monkeypatch, b"the cat\nthe dog\n\xff\n")
    assert "byte 0xff in line 3" in error_of(*command)
    monkeypatch.setattr(ONLSTMForCausalLM, "parse_layers", interrupt)
    assert main([*command, "the cat", "the dog"]) == 130
    assert names_in(tmp_path) == []


def test_the_batch_size_applies_to_model_calls(run, checkpoint, monkeypatch):
    seen, syntactic_distances = [], ONLSTMForCausalLM.syntactic_distances

    def spy(self, input_ids, **options):
        seen.append(len(input_ids))
        return syntactic_distances(self, input_ids, **options)

    monkeypatch.setattr(ONLSTMForCausalLM, "syntactic_distances", spy)
    run("parse", *["the cat sat"] * 100, "--model", checkpoint, "--batch-size", 100)
    assert seen == [100]


@pytest.mark.slow
def test_the_installed_command_streams_batches_and_accepts_a_closed_pipe(
    checkpoint, tmp_path, project_root, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(project_root))
    script = tmp_path / "onlstm-hf"
    script.write_text(CONSOLE_SCRIPT)
    command = [sys.executable, str(script), "parse", "--model", str(checkpoint), "--batch-size", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write(b"the cat\nthe dog\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == [b"(the cat)\n", b"(the dog)\n"]
        process.stdout.close()
        process.stdin.write(b"the cat\nthe dog\n")
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("format", ["brackets", "svg"])
def test_parsing_with_a_model_that_induces_no_trees_is_refused(error_of, baseline, tmp_path, format):
    output = tmp_path / "output.svg"
    error = error_of("parse", "--model", baseline, "--format", format, "--output", output, "the cat sat")
    assert "this model induces no trees" in error
    assert not output.exists()
