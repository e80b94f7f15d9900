"""Code that travels with a checkpoint, so that it loads where this package is not installed.

Transformers' loader of remote code follows `from .name import ...` within one flat folder. So the files that a model
is made of, which stand in folders here, are flattened: `fast/onlstm/fused.py` becomes
`onlstm_fused.py` (the outermost folder's name is left out), and imports are rewritten. From a flat folder the
same functions make the same files again.
"""

import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from transformers.utils import CONFIG_NAME, logging

# The folder of this package or, where this file came with a checkpoint, the one that holds the flat folder.
_ROOT = Path(__file__).resolve().parents[1]
_RELATIVE_IMPORT = re.compile(
    r"^(?P<start>\s*from\s+)(?P<dots>\.+)(?P<module>[\w.]*)(?P<end>\s+import\b)", re.MULTILINE
)
# Where `config.json` names code: the classes of Auto classes, and those of pipelines.
REFERENCES = ("auto_map", "custom_pipelines")

logger = logging.get_logger(__name__)


class ModelCode(NamedTuple):
    """The code of a model, as its checkpoint carries it.

    Attributes:
        files: by its flat name the text of each file.
        references: the entries of `config.json` by which the Auto classes and `pipeline` find the classes in them.
    """

    files: dict[str, str]
    references: dict[str, dict]


def model_code(model_class: type) -> ModelCode:
    """The files that a model and its configuration need of this package, or of the user's own code.

    Args:
        model_class: a `PreTrainedModel`. `auto_map` names its siblings in the same file, which share its
            configuration, too.

    Raises:
        ValueError: if two files would have the same name, or one imports from a folder instead of a file.
    """
    files = _flat_files(_source(model_class), _source(model_class.config_class))
    module = sys.modules[model_class.__module__]
    classes = [
        value
        for value in (*vars(module).values(), model_class)  # where two have the same Auto class, this one has it
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and getattr(value, "config_class", None) is model_class.config_class
        and getattr(value, "auto_class_name", None)
    ]
    auto_map = {"AutoConfig": _reference(model_class.config_class)}
    auto_map |= {cls.auto_class_name: _reference(cls) for cls in classes}
    pipelines = {
        task: {"impl": _reference(pipeline), "pt": [auto_class], "type": "text"}
        for task, (pipeline, auto_class) in model_class.pipelines.items()
        if _flat_name(_source(pipeline)) in files
    }
    return ModelCode(files, {"auto_map": auto_map} | ({"custom_pipelines": pipelines} if pipelines else {}))


def refer_to(references: dict[str, dict], config: str) -> str:
    """The text of a `config.json` with these references in the place of others."""
    entries = {name: value for name, value in json.loads(config).items() if name not in REFERENCES}
    return json.dumps(entries | references, indent=2, sort_keys=True) + "\n"


def write_code(model_class: type, folder: str | Path) -> None:
    """Writes the code of a model into the folder of its checkpoint, and refers to it in `config.json`.

    A class that stands in no file of its own, such as one of a notebook, has no code that could be written.
    """
    module = sys.modules[model_class.__module__]
    if module.__name__ == "__main__" or not (hasattr(module, "__file__") and hasattr(module, model_class.__name__)):
        logger.warning(
            f"{folder} does not carry the code of {model_class.__name__}, which is defined in {module.__name__}: "
            "to load it elsewhere, define the class in a Python file that is imported"
        )
        return
    files, references = model_code(model_class)
    for name, text in files.items():
        (Path(folder) / name).write_bytes(text.encode())
    config_file = Path(folder) / CONFIG_NAME
    config_file.write_text(refer_to(references, config_file.read_text(encoding="utf-8")), encoding="utf-8")


def _flat_files(*sources: Path) -> dict[str, str]:
    """The files and all that they import of their package: by their flat name their text, with flat imports."""
    files, paths, waiting = {}, {}, list(sources)
    while waiting:
        path = waiting.pop()
        name = _flat_name(path)
        if paths.setdefault(name, path) != path:
            raise ValueError(f"{paths[name]} and {path} would both travel as {name}: rename one")
        if name not in files:
            text = path.read_text(encoding="utf-8")
            files[name] = _RELATIVE_IMPORT.sub(partial(_flat_import, path), text)
            waiting += [_imported_file(path, match) for match in _RELATIVE_IMPORT.finditer(text)]
    return dict(sorted(files.items()))


def _source(cls: type) -> Path:
    return Path(sys.modules[cls.__module__].__file__).resolve()


def _reference(cls: type) -> str:
    return f"{_flat_name(_source(cls))[:-3]}.{cls.__name__}"


def _flat_name(path: Path) -> str:
    parts = path.relative_to(_ROOT).parts if path.is_relative_to(_ROOT) else (path.name,)
    return "_".join(parts[1:] or parts)


def _flat_import(path: Path, match: re.Match) -> str:
    return f"{match['start']}.{_flat_name(_imported_file(path, match))[:-3]}{match['end']}"


def _imported_file(path: Path, match: re.Match) -> Path:
    folder = path.parents[len(match["dots"]) - 1]
    found = folder.joinpath(*match["module"].split(".")).with_suffix(".py")
    if not (match["module"] and found.is_file()):
        raise ValueError(f"{path.name} imports {match['dots']}{match['module']}, which is no file that can travel")
    return found
