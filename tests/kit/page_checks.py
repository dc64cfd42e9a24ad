"""What is checked of a page's blocks that are not run: formats, and options of our commands."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, Final

import typer
import yaml
from tests.kit.pages import SHELL, PageBlock

from penstock.artifacts.triton import pbtxt
from penstock.cli import main as cli

_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "pbtxt": lambda text: pbtxt.parse(text, where="page"),
}
_ASSIGNED: Final = re.compile(r"\w+=")


def read(block: PageBlock) -> None:
    """Raises ValueError for a block that is not what it says."""
    reader = _READERS.get(block.language)
    if reader is None or "${" in block.text:
        return
    try:
        reader(block.text)
    except Exception as error:  # each format has errors of its own
        raise ValueError(f"{block.where} is no {block.language}: {error}") from error


def options(block: PageBlock) -> None:
    """Parses commands of ours as the command line would. Raises ValueError."""
    if block.language not in SHELL:
        read(block)
        return
    for words in commands(block.text):
        command: Any = typer.main.get_command(cli.app)
        context, rest = None, words
        while hasattr(command, "commands"):
            name = rest[0] if rest and rest[0] in command.commands else ""
            if not name:
                raise ValueError(f"there is no command penstock {' '.join(words)}")
            context = command.context_class(command, info_name=name, parent=context)
            command, rest = command.commands[name], rest[1:]
        context = command.context_class(command, info_name=command.name, parent=context)
        try:
            command.make_parser(context).parse_args(list(rest))
        except cli.USAGE_ERROR as error:
            raise ValueError(f"penstock {' '.join(words)}: {error}") from error


def commands(text: str) -> Iterator[list[str]]:
    """The words after each `penstock` of a block."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and _ASSIGNED.match(words[0]):
            words = words[1:]
        if "penstock" in words[:1]:
            ends = [n for n, word in enumerate(words) if word in {"|", "&&", ";", ">", "&"}]
            yield words[1 : min(ends, default=len(words))]
