"""Hooks of mkdocs: pages of the repository's root in the site, and links to files that are not in it."""

import re
from configparser import ConfigParser
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES_OF_ROOT = ("README.md", "RESULTS.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK = re.compile(r"(?P<start>!?\[[^\]]*\])\((?!https?://|#|mailto:)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the root; the README is the first page."""
    for name in PAGES_OF_ROOT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes links lead to the page in the site, or else to the file in the repository."""
    source = PurePosixPath(page.file.src_uri)
    is_of_root = page.file.src_uri in PAGES_OF_ROOT
    folder = ROOT if is_of_root else (ROOT / "docs" / source).parent

    def replace(match: re.Match) -> str:
        target = (folder / match["path"]).resolve()
        if not target.is_relative_to(ROOT):
            return match[0]
        path = target.relative_to(ROOT)
        in_site = path.relative_to("docs").as_posix() if path.is_relative_to("docs") else path.as_posix()
        if files.get_file_from_path(in_site) is not None:
            upwards = "../" * (len(source.parts) - 1)
            return f"{match['start']}({upwards}{in_site}{match['anchor'] or ''})"
        address = _repository()
        if address is None:
            return match["start"].lstrip("!")[1:-1]
        return f"{match['start']}({address}/blob/main/{path.as_posix()}{match['anchor'] or ''})"

    # Fenced blocks are code, not links.
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [_LINK.sub(replace, part) for part in parts[::2]]
    return "".join(parts)


def _repository() -> str | None:
    """The address of the repository, `Source` of setup.cfg's project_urls, if it has one."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = settings["metadata"].get("project_urls", "").strip().splitlines()
    return dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in lines).get("Source")
