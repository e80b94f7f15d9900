"""Code that travels with a checkpoint, so that it loads where this package is not installed.

Transformers' loader of remote code follows `from .name import ...` within one flat folder. So the files that a model
is made of, which stand in folders here, are flattened: `ops/ordered_neurons/fused.py` becomes
`ordered_neurons_fused.py` (the outermost folder's name is left out), and imports are rewritten. From a flat folder the
same functions make the same files again.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from transformers import PreTrainedConfig, PreTrainedModel

# Where this file is in its folder `utils`, or, with a checkpoint, beside all others.
_IN_PACKAGE = __package__ == "onlstm_hf.utils"
_ROOT = Path(__file__).resolve().parents[1 if _IN_PACKAGE else 0]
_RELATIVE_IMPORT = re.compile(
    r"^(?P<start>\s*from\s+)(?P<dots>\.+)(?P<module>[\w.]*)(?P<end>\s+import\b)", re.MULTILINE
)


def flat_files(module: ModuleType) -> dict[str, str]:
    """The files that a module needs of this package, itself included: their text by their flat name.

    Raises:
        ValueError: if two files would have the same name, or one imports from a folder instead of a file.
    """
    first = Path(module.__file__).resolve()
    files: dict[str, str] = {}
    paths = {_flat_name(first): first}
    while missing := sorted(paths.keys() - files.keys()):
        path = paths[missing[0]]
        text = path.read_text(encoding="utf-8")
        imported = {_flat_name(found): found for found in _imported_files(path, text)}
        for name in imported.keys() & paths.keys():
            if imported[name] != paths[name]:
                raise ValueError(f"{imported[name]} and {paths[name]} would both travel as {name}: rename one")
        paths |= imported
        files[missing[0]] = _flat_text(path, text)
    return files


def flat_reference(cls: type) -> str:
    """How `config.json` names a class of code that travels: `"modeling_onlstm.ONLSTMForCausalLM"`."""
    return f"{_flat_name(Path(sys.modules[cls.__module__].__file__).resolve())[:-3]}.{cls.__name__}"


def can_travel(cls: type) -> bool:
    """Whether a class stands in a file; one of a notebook or a shell does not."""
    return cls.__module__ != "__main__" and bool(getattr(sys.modules[cls.__module__], "__file__", None))


def references(model_class: type[PreTrainedModel], config_class: type[PreTrainedConfig]) -> dict[str, dict]:
    """What `config.json` must have so that the Auto classes and `pipeline` find code that lies beside it.

    Args:
        model_class: one with `auto_class_name`. Its siblings in the same file are named, too.
        config_class: that of its configuration.
    """
    siblings = [
        value
        for value in vars(sys.modules[model_class.__module__]).values()
        if isinstance(value, type)
        and value.__module__ == model_class.__module__
        and getattr(value, "config_class", None) is config_class
        and getattr(value, "auto_class_name", None)
    ]
    auto_map = {"AutoConfig": flat_reference(config_class)}
    auto_map |= {sibling.auto_class_name: flat_reference(sibling) for sibling in siblings}
    pipelines = {
        task: {"impl": flat_reference(pipeline), "pt": [auto_class], "type": "text"}
        for sibling in siblings
        for task, (pipeline, auto_class) in getattr(sibling, "pipelines", {}).items()
    }
    return {"auto_map": auto_map, **({"custom_pipelines": pipelines} if pipelines else {})}


@contextmanager
def with_references(model: PreTrainedModel) -> Iterator[None]:
    """Within the block, the model's configuration names the code that travels with it."""
    config, before = model.config, dict(vars(model.config))
    for name, value in references(type(model), type(config)).items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name in ("auto_map", "custom_pipelines"):
            vars(config).pop(name, None)
            if name in before:
                setattr(config, name, before[name])


def write_code(model_class: type[PreTrainedModel], folder: str | Path) -> None:
    """Writes the files that a model class needs into the folder of its checkpoint."""
    for name, text in flat_files(sys.modules[model_class.__module__]).items():
        (Path(folder) / name).write_text(text, encoding="utf-8")


def _flat_name(path: Path) -> str:
    parts = path.relative_to(_ROOT).parts if _IN_PACKAGE and path.is_relative_to(_ROOT) else (path.name,)
    return "_".join(parts[1:] or parts)


def _imported_files(path: Path, text: str) -> Iterator[Path]:
    for match in _RELATIVE_IMPORT.finditer(text):
        yield _imported_file(path, match)


def _imported_file(path: Path, match: re.Match) -> Path:
    folder = path.parents[len(match["dots"]) - 1]
    found = folder.joinpath(*match["module"].split(".")).with_suffix(".py")
    if not (match["module"] and found.is_file()):
        raise ValueError(f"{path.name} imports {match['dots']}{match['module']}, which is no file that can travel")
    return found


def _flat_text(path: Path, text: str) -> str:
    def flat_import(match: re.Match) -> str:
        return f"{match['start']}.{_flat_name(_imported_file(path, match))[:-3]}{match['end']}"

    return _RELATIVE_IMPORT.sub(flat_import, text)
