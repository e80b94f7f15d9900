"""What the README and the pages in docs/ say, and the results that it must agree with."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def text_of(page: str) -> str:
    """A page without its line breaks."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def figures(page: str, phrase: str) -> tuple[str, ...]:
    """The figures that stand where the phrase has `{}`; it must stand on the page once, with lines broken anywhere."""
    pattern = re.escape(" ".join(phrase.split())).replace(r"\{\}", r"(\d[\d.,]*\d|\d)")
    (found,) = re.findall(pattern, text_of(page))
    return (found,) if isinstance(found, str) else found


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
