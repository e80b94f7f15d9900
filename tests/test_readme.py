"""What the README shows is what happens."""

import re
import shlex

from onlstm_hf.command_line import build_parser


def blocks(readme: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)


def test_its_python_runs_as_written_and_draws_the_tree_it_shows(project_root, monkeypatch, capsys):
    monkeypatch.chdir(project_root)
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    first, *others = blocks(readme, "python")
    namespace: dict = {}
    exec(first, namespace)
    shown = blocks(readme, "text")[0].rstrip("\n").splitlines()
    assert [line.rstrip() for line in capsys.readouterr().out.rstrip("\n").splitlines()] == shown
    for block in others:
        exec(block, namespace)


def test_its_shell_lines_are_valid_commands(project_root):
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    lines = [line for block in blocks(readme, "bash") for line in block.splitlines()]
    commands = [line.partition("onlstm-hf ")[2] for line in lines if re.search(r"(^|\| )onlstm-hf ", line)]
    assert commands
    for command in commands:
        build_parser().parse_args(shlex.split(command, comments=True))


def test_every_file_it_names_exists(project_root):
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w/])(?:onlstm_hf|training|eval|docs|model_cards)/[\w./-]*\w", readme)
    assert named
    assert [name for name in named if not (project_root / name).exists()] == []
