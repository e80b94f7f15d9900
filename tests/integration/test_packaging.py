"""Builds: wheels for all Python versions, the page of package indexes, the source archive."""

import re
import runpy
import zlib
from pathlib import Path

import pytest

setuptools = pytest.importorskip("setuptools")
egg_info = pytest.importorskip("setuptools.command.egg_info")

MAX_ARCHIVE_BYTES = 100e6  # PyPI's default limit


@pytest.fixture(scope="module")
def build(project_root):
    """Returns the names in setup.py and the arguments of `setuptools.setup`."""
    given = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", lambda **options: given.update(options))
        patch.chdir(project_root)
        names = runpy.run_path("setup.py")
    return names | {"given": given}


@pytest.fixture
def distribution(build, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "operator.cpp").write_text("int operator_interface() { return 1; }")
    extension = setuptools.Extension("package._operator", ["operator.cpp"], language="c++", optional=True)
    return setuptools.Distribution({"name": "package", "version": "1", "ext_modules": [extension]})


def test_a_wheel_fits_every_python_of_its_platform(build, distribution):
    command = build["PlatformWheel"](distribution)
    command.finalize_options()
    assert command.get_tag()[:2] == ("py3", "none")
    assert build["BuildLibraries"](distribution).get_ext_filename("package._operator") == "package/_operator.so"


def test_a_build_without_a_compiler_succeeds_with_a_one_line_warning(build, distribution, monkeypatch, capfd):
    for variable in ("CC", "CXX"):
        monkeypatch.setenv(variable, "no-such-compiler")
    command = build["BuildLibraries"](distribution)
    command.finalize_options()
    command.run()
    assert capfd.readouterr().err.splitlines() == [build["FAST_PATH_IS_MISSING"].format(1, 1)]


def test_the_package_page_has_no_dead_links(build, project_root):
    page = build["given"]["long_description"]
    assert "onlstm-hf parse" in page and "https://arxiv.org/abs/1810.09536" in page
    assert re.findall(r"\]\((?!https?://)[^)]*\)", page) == []


def test_the_package_page_has_absolute_links_and_images(build):
    page = build["package_index_text"]
    text = "[code](docs/code.md) ![tree](docs/tree.svg) [paper](https://arxiv.org)\n```py\nx[a](b)\n```\n"
    assert page(text, None) == "code  [paper](https://arxiv.org)\n```py\nx[a](b)\n```\n"
    assert page(text, "https://host/name") == (
        "[code](https://host/name/blob/main/docs/code.md) ![tree](https://host/name/raw/main/docs/tree.svg) "
        "[paper](https://arxiv.org)\n```py\nx[a](b)\n```\n"
    )


def test_the_source_archive_has_the_tests_and_their_data(project_root):
    lines = (project_root / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    grafted = {line.partition(" ")[2] for line in lines if line.startswith("graft ")}
    assert grafted == {"docs", "eval", "examples", "model_cards", "onlstm_hf", "tests", "training"}


def test_the_source_archive_is_below_the_limit_of_package_indexes(project_root, monkeypatch):
    monkeypatch.chdir(project_root)
    files = egg_info.FileList()
    files.findall()
    for line in Path("MANIFEST.in").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            files.process_template_line(line)
    size = sum(len(zlib.compress(Path(file).read_bytes(), level=1)) for file in set(files.files))
    assert 50e6 < size < MAX_ARCHIVE_BYTES  # an upper bound, since the archive is compressed as a whole
