"""Writes docs/reference from the code: `python docs/generate.py`; with --check it only compares.

The command line comes from Typer, settings from the dataclasses and their comments, error codes
from the source, metrics from their own table. Nothing in docs/reference is written by hand.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from penstock.api.sagemaker import security_members
from penstock.cli import main as cli
from penstock.cli.settings import PREFIX, walk
from penstock.config import ServerConfig
from penstock.core.machine.room import MachineCapacity
from penstock.fleet.catalogue import MACHINE_TYPE, InstanceCatalogue
from penstock.metrics.page import reference as metrics_reference

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "penstock"
TARGET = ROOT / "docs" / "reference"
ERRORS = ("CallerError", "NotNowError", "ModelError", "InternalError")


def command_line() -> str:
    """Every command with its arguments and options."""
    lines = ["# Command line", "", "Generated from the code; do not edit.", ""]
    group = typer.main.get_command(cli.app)
    for path, command in _commands(group, ("penstock",)):
        lines += [f"## {' '.join(path)}", "", (command.help or "").strip(), ""]
        rows = [_parameter(item) for item in command.params if item.name != "help"]
        if rows:
            lines += ["| option | default | meaning |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name in sorted(inner):
        yield from _commands(inner[name], (*path, name))


def _parameter(item: Any) -> str:
    if item.param_type_name == "argument":
        name = f"`{item.metavar or item.name.upper()}`"
    else:
        name = ", ".join(f"`{option}`" for option in (*item.opts, *item.secondary_opts))
    default = item.default
    shown = "" if default in (None, "", False) or callable(default) else f"`{default}`"
    meaning = (getattr(item, "help", "") or "").replace("|", "\\|")
    return f"| {name} | {shown} | {meaning} |"


def settings() -> str:
    """Every setting: path, variable, default, meaning (the comment beside the field)."""
    comments = _comments(SOURCE / "config.py")
    lines = [
        "# Settings",
        "",
        "Generated from the code; do not edit. Defaults < TOML file < environment < flags. A "
        "relative path in a file is relative to the file, elsewhere to where the command runs.",
        "",
        "| setting | environment | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for path, value in walk(ServerConfig()):
        variable = PREFIX + path.upper().replace(".", "_")
        default = "the user's data directory" if path == "state_dir" else f"`{value}`"
        meaning = comments.get(path.rpartition(".")[2], "")
        lines.append(f"| `{path}` | `{variable}` | {default} | {meaning} |")
    return "\n".join([*lines, ""])


def _comments(file: Path) -> dict[str, str]:
    found = re.findall(r"^    (\w+): .*?#: (.*)$", file.read_text(), re.MULTILINE)
    return dict(found)


def error_codes() -> str:
    """Every code that is raised, by family, with where it comes from."""
    rows: dict[tuple[str, str], set[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            code = _raised(node)
            if code is not None:
                rows.setdefault(code, set()).add(str(file.relative_to(SOURCE)))
    lines = [
        "# Error codes",
        "",
        "Generated from the code; do not edit. Families: the caller's (fix the request), not now",
        "(the same request may pass later), the model's, ours.",
        "",
        "| code | family | raised in |",
        "| --- | --- | --- |",
    ]
    for (code, family), files in sorted(rows.items()):
        lines.append(
            f"| `{code}` | {family} | {', '.join(f'`{name}`' for name in sorted(files))} |"
        )
    return "\n".join([*lines, ""])


def _raised(node: ast.AST) -> tuple[str, str] | None:
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    first = node.args[0]
    if name in ERRORS and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value, name.removesuffix("Error")
    return None


def instance_types() -> str:
    """The catalogue, as it is on a machine that is larger than all of it."""
    machine = MachineCapacity(cores=1024.0, memory_bytes=2**46, accelerators=64)
    catalogue = InstanceCatalogue(machine)
    lines = [
        "# Instance types",
        "",
        "Generated from the code; do not edit. An instance may take what its type names, or what",
        "the machine has where that is less; `ml.local.machine` is all of it. For `ml.local` types",
        "that memory is set aside. AWS's are upper bounds: instances are placed by what their",
        "models need and take ([how](../howto/instance-types.md)), unless the setting",
        "`control.capacity` is `strict`: then they are set aside too, with half of the machine's",
        "memory at most. Any other name of the form `ml.<family>.<size>` is accepted, with figures",
        "derived from its size. An instance that takes more memory than its type allows is ended,",
        "says so, and is started again.",
        "",
        "Prices are US dollars per hour and are for cost reports, nothing is decided by them:",
        "AWS's approximate on-demand prices of hosting in us-east-1 for its types, and for",
        "`ml.local` types 0.02 a core and 0.5 an accelerator, an estimate of electricity and wear.",
        "Watts are estimates under load.",
        "",
        "| type | cores | memory, GiB | accelerators | price per hour | watts |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in catalogue.names():
        if name != MACHINE_TYPE:
            kind = catalogue.resolve(name)
            lines.append(
                f"| `{name}` | {kind.cores:g} | {kind.memory_bytes / 2**30:g} |"
                f" {kind.accelerators} | {kind.price_per_hour:g} | {kind.watts:g} |"
            )
    return "\n".join([*lines, ""])


def security() -> str:
    """Members of AWS's requests that promise security, and what becomes of them."""
    tables = (
        ("Carried out", "how", security_members.CARRIED_OUT),
        ("Refused", "why", security_members.REFUSED),
        ("Accepted, without meaning here", "why", security_members.WITHOUT_MEANING),
    )
    lines = ["# Members that promise security", "", "Generated from the code; do not edit."]
    for title, word, table in tables:
        lines += ["", f"## {title}", "", f"| member | {word} |", "| --- | --- |"]
        lines += [f"| `{path}` | {why} |" for path, why in table.items()]
    return "\n".join([*lines, ""])


def pages() -> dict[str, str]:
    """File name -> content, of everything below docs/reference."""
    return {
        "cli.md": command_line(),
        "config.md": settings(),
        "errors.md": error_codes(),
        "instance-types.md": instance_types(),
        "metrics.md": metrics_reference.render(),
        "security-members.md": security(),
    }


def stale() -> list[str]:
    """Names of the pages that differ from what the code says."""
    return [
        name
        for name, text in pages().items()
        if not (TARGET / name).exists() or (TARGET / name).read_text() != text
    ]


def write() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    if "--check" in sys.argv:
        names = stale()
        if names:
            print(f"stale: {', '.join(names)}; run: python docs/generate.py", file=sys.stderr)
        raise SystemExit(bool(names))
    write()
