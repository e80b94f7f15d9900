"""Parser of recipe files and command-line overrides."""

import json
import re
from argparse import ArgumentParser, ArgumentTypeError
from copy import copy
from dataclasses import Field
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser

from training.loop.recipe import ModelFields


class RecipeLoader(yaml.SafeLoader):
    """Safe YAML loader that refuses duplicate keys, and reads `1e-3` as a number, as YAML 1.2 does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                raise ValueError(f"{self.name} has {name} in line {lines[name]} and in line {line}: leave out one")
            lines[name] = line
        return super().construct_mapping(node, deep)


RecipeLoader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9.]+e[-+]?[0-9]+"), None)


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
        groups: dataclasses of fields; one of them is a `ModelFields`, which `--model.NAME VALUE` changes.
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
    if arguments and not arguments[0].startswith("-"):
        arguments = [*read_recipe(Path(arguments[0])), *arguments[1:]]
    for option in {argument.partition("=")[0] for argument in arguments}:
        if option.startswith("--model."):
            parser.add_argument(option, type=_yaml_value)
    *values, unknown = parser.parse_args_into_dataclasses(
        arguments, return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        raise ValueError(f"unknown arguments: {' '.join(unknown)}; see {program} --help")
    if len(values) > len(groups):  # the last is a namespace of `--model.NAME`
        changes = vars(values.pop())
        (fields,) = (value.model for value in values if isinstance(value, ModelFields))
        fields.update({name.removeprefix("model."): value for name, value in changes.items()})
    return values


def read_recipe(path: Path) -> list[str]:
    """Returns the fields of a recipe file as command-line arguments."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no recipe {path}")
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.load(file, RecipeLoader) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must be a mapping of field names to values")
    if not isinstance(content.get("model") or {}, dict):
        raise ValueError(f"the model section of {path} must be a mapping of configuration fields to values")
    arguments: list[str] = []
    for name, value in content.items():
        if isinstance(value, list):
            arguments += [f"--{name}", *map(str, value)]
        elif isinstance(value, dict):
            arguments.append(f"--{name}={json.dumps(value)}")
        elif value is not None:
            # YAML reads a bare `no`, which mixed_precision also accepts, as false.
            arguments.append(f"--{name}={('no', 'yes')[value] if isinstance(value, bool) else value}")
    return arguments


def _yaml_value(text: str) -> Any:
    try:
        return yaml.load(text, RecipeLoader)
    except yaml.YAMLError as error:
        raise ArgumentTypeError(f"{text} is no YAML: {error}") from error
