"""Parser of recipe files and command-line overrides."""

import json
import re
from argparse import ArgumentParser
from copy import copy
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser


class RecipeLoader(yaml.SafeLoader):
    """Safe YAML loader for open files that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                raise ValueError(f"{self.name} has {name} in line {lines[name]} and in line {line}: leave out one")
            lines[name] = line
        return super().construct_mapping(node, deep)


class RecipeParser(HfArgumentParser):
    """Argument parser that raises a `ValueError` instead of ending the process.

    Options begin with two hyphens. An argument with one hyphen is a value, such as the tag `-NONE-`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile("-[^-]")  # otherwise argparse takes these values for options
        for action in self._actions:
            if action.nargs == "+":
                action.nargs = "*"  # allows an empty list: `dropped_tags: []`

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")

    @staticmethod
    def _parse_dataclass_field(parser: ArgumentParser, field: Field) -> None:
        # The base class passes all metadata to `add_argument`, which knows only `help`.
        field = copy(field)
        field.metadata = {"help": field.metadata["help"]}
        HfArgumentParser._parse_dataclass_field(parser, field)


def parse_groups(arguments: list[str], groups: tuple[type, ...], program: str, description: str) -> list:
    """Reads an instance of each group from the arguments `[recipe.yaml] [--name value ...]`.

    Args:
        groups: dataclasses of fields; one of them is a `ModelFields`.
        program: name of the script, for help and errors.
        description: sentence on what the script does.

    Raises:
        FileNotFoundError: if the recipe file does not exist.
        ValueError: for unknown or duplicate keys and values of the wrong type.
    """
    parser = RecipeParser(
        groups,
        prog=program,
        usage="accelerate launch training/%(prog)s RECIPE.yaml [--name value ...]",
        description=f"{description} Every field can be set in the recipe file or on the command line.",
        allow_abbrev=False,
    )
    texts: list[str] = []
    model_fields: dict[str, Any] = {}
    if arguments and not arguments[0].startswith("-"):
        texts, model_fields = _read_yaml(Path(arguments[0]), groups, program)
        arguments = arguments[1:]
    overrides, model_overrides = _split_model_overrides(arguments)
    model = json.dumps(model_fields | model_overrides)
    *values, unknown = parser.parse_args_into_dataclasses(
        [*texts, *overrides, "--model", model], return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        raise ValueError(f"unknown arguments: {' '.join(unknown)}; see {program} --help")
    return values


def _read_yaml(path: Path, groups: tuple[type, ...], program: str) -> tuple[list[str], dict[str, Any]]:
    """Returns a recipe file as command-line arguments, and its `model` section."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no recipe {path}")
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.load(file, RecipeLoader) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a mapping of field names to values")
    model_fields = content.pop("model", None) or {}
    if not isinstance(model_fields, dict):
        raise ValueError(f"the model section of {path} must be a mapping of configuration fields to values")
    names = {item.name for group in groups for item in fields(group)}
    unknown = sorted(str(name) for name in set(content) - names)
    if unknown:
        raise ValueError(f"{path} has unknown fields: {', '.join(unknown)}; see {program} --help")
    texts: list[str] = []
    for name, value in content.items():
        if isinstance(value, list):
            texts += [f"--{name}", *map(str, value)]
        elif value is not None:
            # YAML reads a bare `no`, which mixed_precision also accepts, as false.
            texts.append(f"--{name}={('no', 'yes')[value] if isinstance(value, bool) else value}")
    return texts, {name: _model_value(value) for name, value in model_fields.items()}


def _split_model_overrides(arguments: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Separates `--model.name value` and `--model.name=value` from the other arguments."""
    other_arguments: list[str] = []
    model_fields: dict[str, Any] = {}
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--model" or argument.startswith("--model="):
            raise ValueError("override fields of the model one by one: --model.hidden_size 650")
        if not argument.startswith("--model."):
            other_arguments.append(argument)
            continue
        name, equals, value = argument.removeprefix("--model.").partition("=")
        value = value if equals else next(remaining, "")
        if not value or value.startswith("--"):
            raise ValueError(f"--model.{name} needs a value")
        try:
            model_fields[name] = _model_value(yaml.safe_load(value))
        except yaml.YAMLError as error:
            raise ValueError(f"--model.{name} has the value {value}, which is no YAML: {error}") from error
    return other_arguments, model_fields


def _model_value(value: Any) -> Any:
    """Converts strings such as `1e-3` to numbers; YAML 1.1 reads them as strings."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
