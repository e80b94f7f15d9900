"""Writes the page with its checkpoints into a folder that any web server can host."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..utils.checkpoints import load_checkpoint
from ..utils.files import check_writable, written_folder
from ..version import __version__
from .about import about_model
from .weights import write_weights

STATIC = Path(__file__).parent / "static"
CONFIG_FIELDS = (
    *("model_type", "num_hidden_layers", "eos_token_id", "hidden_size", "embedding_size", "chunk_size", "cell_type"),
    *("num_slots", "lookback", "resolution", "hard", "num_residual_blocks", "parsing_network", "reading_attention"),
    "prediction_attention",
)


def write_page(
    folder: str | Path, checkpoints: Sequence[str], *, precision: str = "int8", offline: bool = True
) -> None:
    """Writes the page into a new folder.

    Args:
        folder: a new folder.
        checkpoints: checkpoint folders or names on the Hub; the page opens with the first.
        precision: precision of the weights, see `write_weights`.
        offline: whether browsers cache the page, so that it opens without a network.

    Raises:
        FileExistsError, FileNotFoundError: if the folder exists, or its parent folder does not.
        FileNotFoundError, ValueError: if a checkpoint cannot be loaded or shown.
    """
    check_writable(folder, is_new=True)
    if not checkpoints:
        raise ValueError("name at least one checkpoint for the page")
    loaded = [load_checkpoint(checkpoint) for checkpoint in checkpoints]
    with written_folder(Path(folder)) as partial:
        shutil.copytree(STATIC, partial, dirs_exist_ok=True)
        names = _names(checkpoints)
        for name, checkpoint, (model, tokenizer) in zip(names, checkpoints, loaded, strict=True):
            target = partial / "models" / name
            target.mkdir(parents=True)
            _write_json(target / "tokenizer.json", _tokenizer_description(checkpoint, tokenizer))
            tensors = write_weights(model.cpu(), target / "weights.bin", precision)
            about = {"name": name, **about_model(model, checkpoint), "precision": precision}
            config = {field: getattr(model.config, field) for field in CONFIG_FIELDS if hasattr(model.config, field)}
            _write_json(target / "model.json", about | {"config": config, "tensors": tensors})
        site = {"models": names, "made_with": f"onlstm_hf {__version__}"}
        if offline:
            site["files"], site["version"] = _files(partial)
        _write_json(partial / "site.json", site)


def _tokenizer_description(checkpoint: str, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Returns the content of `tokenizer.json`, and refuses what `static/model/tokenizer.js` does not support."""
    description = json.loads(tokenizer.backend_tokenizer.to_str())
    problem = f"the page cannot run the tokenizer of {checkpoint}: its"
    model = description["model"]
    if not description["pre_tokenizer"] or (model["type"] == "BPE" and model["continuing_subword_prefix"] is None):
        raise ValueError(f"{problem} pre-tokenizer must split texts into words, as that of build_word_tokenizer does")
    supported = {
        "normalizer": ("Sequence", "Lowercase", "Replace", "Strip", "NFC", "NFD", "NFKC", "NFKD"),
        "pre_tokenizer": ("Sequence", "WhitespaceSplit", "Whitespace", "Split"),
        "model": ("WordLevel", "BPE"),
    }
    for part, types in supported.items():
        components = [description[part]] if description[part] else []
        for component in components:  # grows during the loop
            components += component.get("normalizers", []) + component.get("pretokenizers", [])
            if component["type"] not in types:
                raise ValueError(f"{problem} {part} has {component['type']} instead of {', '.join(types)}")
    return description


def _names(checkpoints: Sequence[str]) -> list[str]:
    """Returns folder names for the checkpoints: the last parts of their names, numbered if they repeat."""
    names: list[str] = []
    for checkpoint in checkpoints:
        base = Path(checkpoint).resolve().name
        numbered = (f"{base}-{number}" for number in count(2))
        names.append(next(name for name in chain([base], numbered) if name not in names))
    return names


def _files(folder: Path) -> tuple[list[str], str]:
    """Returns the files that browsers cache, and a version that changes with any of them."""
    digest = hashlib.sha256()
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "README.md")
    for path in files:
        digest.update(path.read_bytes())
    return [path.relative_to(folder).as_posix() for path in files], digest.hexdigest()[:16]


def _write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
