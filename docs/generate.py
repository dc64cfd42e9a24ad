"""Writes docs/reference from the code: `python docs/generate.py`; with --check it only compares.

The command line comes from Typer, settings and files from their declarations and the comments
beside them, error codes from the source, metrics from their own table. Nothing in docs/reference is
written by hand.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer
import yaml
from msgspec import inspect as declared

from penstock import distribution
from penstock.api.sagemaker import security_members
from penstock.artifacts.description.builds import BuildsFile
from penstock.artifacts.description.model_yaml import ModelFile
from penstock.cli import main as cli
from penstock.cli.settings import PREFIX, walk
from penstock.config import ServerConfig
from penstock.core.resources import ComputeResources
from penstock.file_schema import allowed_by, information
from penstock.fleet.catalogue import MACHINE_TYPE, InstanceCatalogue
from penstock.metrics.page import reference as metrics_reference
from penstock.orchestrator.regions_file import RegionsKeys
from penstock.packaging.apply_spec import ApplyKeys
from penstock.packaging.package_spec import PackageKeys
from penstock.runtimes import registry
from penstock.runtimes.pipeline.file import PipelineKeys
from penstock.runtimes.python import toolkit_variables
from penstock.runtimes.python.pb_utils import offered
from penstock.sim.scenario import Scenario

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]
import refused  # noqa: E402 - beside this file
from bench.triton.differences import DIFFERENCES  # noqa: E402 - of the checkout

SOURCE = ROOT / "src" / "penstock"
TARGET = ROOT / "docs" / "reference"
#: Files that people write, and what declares them.
FILES: dict[str, type] = {
    "model.yaml": ModelFile,
    "pipeline.yaml": PipelineKeys,
    "builds.yaml": BuildsFile,
    "package.yaml": PackageKeys,
    "apply.yaml": ApplyKeys,
    "regions.yaml": RegionsKeys,
    "scenario.toml": Scenario,
}
#: Whole model.yaml files, from which its page takes the examples.
EXAMPLES = ROOT / "docs" / "model_yaml_examples.yaml"
EXAMPLE_CHARS_MAX = 70
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
    lines = [
        "# Settings",
        "",
        "Generated from the code; do not edit. Defaults < TOML file < environment < flags. A "
        "relative path in a file is relative to the file, elsewhere to where the command runs.",
        "",
        "| setting | environment | value | default | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for path, value in walk(ServerConfig()):
        variable = PREFIX + path.upper().replace(".", "_")
        default = "the user's data directory" if path == "state_dir" else f"`{value}`"
        allowed, meaning = _setting(ServerConfig, path)
        lines.append(f"| `{path}` | `{variable}` | {allowed} | {default} | {meaning} |")
    return "\n".join([*lines, ""])


def _setting(kind: type, path: str) -> tuple[str, str]:
    """What it may be, and what it means."""
    section, _, rest = path.partition(".")
    info: Any = information(kind)
    (declaration,) = (field.type for field in info.fields if field.name == section)
    if rest:
        return _setting(declaration.cls, rest)
    return _value(declaration), _comments(kind)[section]


def _comments(kind: type) -> dict[str, str]:
    """What `#:` says of each field of a class, above it or beside it."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("penstock"):
            continue
        lines = textwrap.dedent(inspect.getsource(base)).splitlines()
        (body,) = ast.parse("\n".join(lines)).body
        assert isinstance(body, ast.ClassDef)
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                first = node.lineno - 1
                while lines[first - 1].lstrip().startswith("#:"):
                    first -= 1
                said = [line.partition("#:")[2].strip() for line in lines[first : node.end_lineno]]
                found[node.target.id] = " ".join(filter(None, said))
    return found


def files() -> str:
    """Every key of every file: where it stands, what it may be, default, meaning."""
    lines = [
        "# Files",
        "",
        "Generated from the code; do not edit. An editor that knows JSON Schema",
    ]
    lines += ["checks a file while it is written, with [its schema](../howto/editors.md)."]
    for name, kind in FILES.items():
        lines += ["", f"## {name}", "", str(kind.__doc__).partition("\n")[0], ""]
        lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
        lines += _keys(information(kind), "")
    return "\n".join([*lines, ""])


def model_yaml() -> str:
    """Every key of a model.yaml with an example, and whole files."""
    lines = [
        "# model.yaml",
        "",
        "Generated from the code; do not edit. The file lies at the root of an artifact and says",
        "what its model is. Most artifacts need none: what a file says of itself is read from it.",
        "`penstock init` writes one, `penstock describe` shows what is in force.",
        "",
        "| key | value | default | example | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    examples = model_examples()
    for row in _keys(information(ModelFile), ""):
        key, value, default, meaning = row.removeprefix("| ").removesuffix(" |").split(" | ")
        example = examples.get(key.strip("`"), "")
        shown = f"`{example}`".replace("|", "&#124;") if example else ""
        lines.append(f"| {key} | {value} | {default} | {shown} | {meaning} |")
    lines += ["", "## Whole files"]
    for text in _example_files():
        first, _, rest = text.partition("\n")
        lines += ["", first.removeprefix("# "), "", "```yaml", rest.rstrip(), "```"]
    return "\n".join([*lines, ""])


def _example_files() -> list[str]:
    """The examples as texts; each begins with a comment."""
    return EXAMPLES.read_text().split("---\n")[1:]


def model_examples() -> dict[str, str]:
    """Path of a key -> the first example of its value, as YAML that fits a line."""
    found: dict[str, str] = {}
    for text in _example_files():
        _note_examples(yaml.safe_load(text), "", found)
    return found


def _note_examples(value: Any, path: str, found: dict[str, str]) -> None:
    if path:
        flow = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
        line = flow.removesuffix("\n").removesuffix("\n...")
        found.setdefault(path, line if len(line) <= EXAMPLE_CHARS_MAX else "")
    if isinstance(value, dict):
        for key, own in value.items():
            _note_examples(own, f"{path}.{key}" if path else key, found)
    elif isinstance(value, list):
        for own in value:
            _note_examples(own, f"{path}[]", found)


def _keys(info: Any, path: str) -> Iterator[str]:
    """A row for each key of a mapping, and of those in it."""
    for option in _options(info):
        if isinstance(option, declared.CollectionType):
            yield from _keys(option.item_type, f"{path}[]")
        elif isinstance(option, declared.DictType):
            yield from _keys(option.value_type, f"{path}.NAME")
        elif isinstance(option, declared.DataclassType | declared.StructType):
            comments = _comments(option.cls)
            for field in option.fields:
                key = f"{path}.{field.encode_name}" if path else field.encode_name
                default = "required" if field.required else _shown(field.default)
                cells = (f"`{key}`", _value(field.type), default, comments[field.name])
                yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
                yield from _keys(field.type, key)


def _value(info: Any) -> str:
    """What a key may be, in words."""
    options = _options(info)
    for option in options:
        made = isinstance(option, declared.CustomType) and option.cls is not Path
        if made or isinstance(option, declared.AnyType):
            return "anything"
    value = allowed_by(info)
    described = isinstance(info, declared.Metadata) and "allowed" in (info.extra or {})
    if isinstance(options[0], declared.CollectionType) and not described:
        item = options[0].item_type
        if not isinstance(item, declared.DataclassType | declared.StructType):
            value = f"{value}: {_value(item)}"
    return value.replace("; put it in quotes", "")


def _options(info: Any) -> list[Any]:
    """The types that a value may have."""
    if isinstance(info, declared.Metadata):
        return _options(info.type)
    if isinstance(info, declared.UnionType):
        return [option for one in info.types for option in _options(one)]
    return [info]


def _shown(default: object) -> str:
    """Nothing is shown where the default is what no file says."""
    empty = default is msgspec.NODEFAULT or default in ("", None, ())
    return "" if empty else f"`{json.dumps(default)}`"


def json_schema(kind: type) -> str:
    """JSON Schema of a file, for editors."""
    schema = msgspec.json.schema(kind, schema_hook=lambda _: {"title": "Anything"})
    classes = {each.__name__: each for each in _classes(information(kind))}
    for part in schema["$defs"].values():
        comments = _comments(classes[part["title"]])
        names = _encoded(classes[part["title"]])
        for key, own in part["properties"].items():
            if comments[names[key]]:
                own["description"] = comments[names[key]]
            default = own.get("default")
            if default in ("", None, (), {}) or default == 0 < own.get("minimum", 0):
                own.pop("default", None)  # what is left out; no file says it
        if "description" in part:  # msgspec does this itself from 0.23 on
            part["description"] = inspect.cleandoc(part["description"])
        part["additionalProperties"] = False
    text = json.dumps(_without_null(schema), indent=1, ensure_ascii=False)
    return f"{text}\n"


def _classes(info: Any) -> Iterator[type]:
    for option in _options(info):
        if isinstance(option, declared.CollectionType):
            yield from _classes(option.item_type)
        elif isinstance(option, declared.DictType):
            yield from _classes(option.value_type)
        elif isinstance(option, declared.DataclassType | declared.StructType):
            yield option.cls
            for field in option.fields:
                yield from _classes(field.type)


def _encoded(kind: type) -> dict[str, str]:
    """The keys of a mapping -> the names of its fields."""
    return {field.encode_name: field.name for field in information(kind).fields}  # type: ignore[attr-defined]


def _without_null(schema: Any) -> Any:
    """A key that is left out is no key with null, which files may not have."""
    if isinstance(schema, list):
        return [_without_null(each) for each in schema]
    # Annotations that are equal may be one object: 1 and 1.0 are written as whichever came first.
    if isinstance(schema, float) and schema.is_integer():
        return int(schema)
    if not isinstance(schema, dict):
        return schema
    found = {key: _without_null(value) for key, value in schema.items()}
    if "or type" in found:  # msgspec sets the type itself, whatever a declaration adds
        found["type"] = [found["type"], found.pop("or type")]
    options = [one for one in found.get("anyOf", ()) if one != {"type": "null"}]
    if "anyOf" in found:
        found["anyOf"] = options
    if len(options) == 1:
        del found["anyOf"]
        found = options[0] | found
    return found


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
    machine = ComputeResources(cores=1024.0, memory_bytes=2**46, accelerators=64)
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
        "derived from its size, unless it seems to be a known one misspelt.",
        "An instance that takes more memory than its type allows is ended,",
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
            has = kind.resources
            lines.append(
                f"| `{name}` | {has.cores:g} | {has.memory_bytes / 2**30:g} |"
                f" {has.accelerators} | {kind.price_per_hour:g} | {kind.watts:g} |"
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


def runtimes() -> str:
    """What each runtime's record says."""
    lines = [
        "# Runtimes",
        "",
        "Generated from the code; do not edit. A runtime is named by `runtime` in model.yaml, or",
        "`local://NAME` as the image; left out, the artifact's files decide.",
        "",
        "| runtime | serves | files | Triton's backends | task, where none is given | keys of its"
        " own | lanes | installed with |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in registry.records():
        found = one.suffixes or (one.engine.graph, one.engine.weights)
        files = ", ".join(f"`{name}`" for name in (*found, one.default_file) if name)
        triton = ", ".join(f"`{word}`" for word in one.triton)
        keys = ", ".join(f"`{key}`" for key in sorted(one.options))
        lanes = "threads" if one.in_threads else "processes"
        extra = f"`{distribution.NAME}[{one.extra}]`" if one.extra else ""
        lines.append(
            f"| `{one.name}` | {one.title} | {files} | {triton} | `{one.task}` | {keys} | {lanes} |"
            f" {extra} |"
        )
    return "\n".join([*lines, ""])


def names_for_triton() -> str:
    """What each name of Triton's module for Python models does here."""
    lines = [
        "# Names for Triton's Python models",
        "",
        "Generated from the code; do not edit. A model in a Triton repository whose backend is",
        "`python` imports them from `triton_python_backend_utils`.",
        "",
        "| name | here |",
        "| --- | --- |",
    ]
    lines += [f"| `{name}` | {words} |" for name, words in offered.TABLE.items()]
    return "\n".join([*lines, ""])


def differences_from_triton() -> str:
    """Where answers differ from those of NVIDIA's server; the benchmark holds each row to it."""
    lines = [
        "# Where answers differ from Triton's",
        "",
        "Generated from `bench/triton/differences.py`; do not edit. `make bench",
        "NAME=triton_answers` sends the same requests to NVIDIA's server and to Penstock and",
        "compares codes and answers; what differs stands here. Texts of errors are each server's",
        "own. What a `config.pbtxt` may not ask for has [a list](../howto/refused.md#triton).",
        "",
        "| | here | in Triton | why |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {one.what} | {one.here} | {one.triton} | {one.why} |" for one in DIFFERENCES]
    return "\n".join([*lines, ""])


def variables_of_toolkits() -> str:
    """What becomes of each environment variable that SageMaker's toolkits read."""
    lines = [
        "# Variables of SageMaker's toolkits",
        "",
        "Generated from the code; do not edit. Each may stand in a model's `Environment`, and the",
        "model's code sees them all. *Refused*: the model is not loaded, and the error names the",
        "variable. *No effect*: the endpoint's log says so once. Where several name one thing, the",
        "first of them here counts.",
        "",
        "| variable | here | meaning |",
        "| --- | --- | --- |",
    ]
    for row in toolkit_variables.TABLE:
        allowed = ", ".join(f"`{value}`" for value in row.harmless if value)
        but = f" (allowed: {allowed})" if allowed else ""
        lines.append(f"| `{row.name}` | {row.use} | {row.meaning}{but} |")
    return "\n".join([*lines, ""])


def pages() -> dict[str, str]:
    """File name -> content, of everything below docs/reference."""
    return {
        "cli.md": command_line(),
        "config.md": settings(),
        "errors.md": error_codes(),
        "files.md": files(),
        "instance-types.md": instance_types(),
        "metrics.md": metrics_reference.render(),
        "model-yaml.md": model_yaml(),
        "runtimes.md": runtimes(),
        "security-members.md": security(),
        "toolkit-variables.md": variables_of_toolkits(),
        "triton-differences.md": differences_from_triton(),
        "triton-python.md": names_for_triton(),
        "../howto/refused.md": refused.page(),
    } | {f"schemas/{name}.json": json_schema(kind) for name, kind in FILES.items()}


def stale() -> list[str]:
    """Names of the pages that differ from what the code says."""
    return [
        name
        for name, text in pages().items()
        if not (TARGET / name).exists() or (TARGET / name).read_text() != text
    ]


def write() -> None:
    (TARGET / "schemas").mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    if "--check" in sys.argv:
        names = stale()
        if names:
            print(f"stale: {', '.join(names)}; run: python docs/generate.py", file=sys.stderr)
        raise SystemExit(bool(names))
    write()
