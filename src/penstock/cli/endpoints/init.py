"""`penstock init KIND FILE`: a folder that can be deployed, for kinds of models that need code."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.endpoints.init_kinds import KINDS, StarterKind
from penstock.cli.output import note
from penstock.errors import CallerError


def init(
    kind: Annotated[str, typer.Argument(help=f"One of: {', '.join(KINDS)}.")],
    file: Annotated[
        Path | None, typer.Argument(help="The model's file or folder; none for a pipeline.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write [named after FILE].")
    ] = None,
) -> None:
    """Write a folder with a model, its model.yaml and code that serves it; never overwrites."""
    starter = _kind(kind)
    source = _source(kind, starter, file)
    folder = out or Path(_name(source) if source is not None else kind)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CallerError(
            "output-exists",
            f"{folder} exists, and init overwrites nothing",
            hint="Name another folder with --out.",
        )
    for written in write(starter, source, folder):
        note(f"wrote {folder / written}")
    name = _name(folder)
    if source is not None:
        for code in starter.instead(source):
            note(f"{starter.unfinished.replace('{file}', source.name)} {folder / code}")
    print(f"penstock deploy {name} {folder}")
    sample = starter.sample(source or Path())
    if sample:
        print(f"penstock invoke {name} {shlex.quote(sample)}")


def _kind(kind: str) -> StarterKind:
    if kind not in KINDS:
        raise CallerError(
            "kind-unknown",
            f"there is no kind {kind!r}",
            hint="Kinds: " + "; ".join(f"{name} ({one.title})" for name, one in KINDS.items()),
        )
    return KINDS[kind]


def _source(kind: str, starter: StarterKind, file: Path | None) -> Path | None:
    if not starter.takes:
        return None
    if file is None or not (file.is_dir() if starter.folder else file.is_file()):
        what = "no file is given" if file is None else f"{file} is not that"
        raise CallerError(
            "file-unusable",
            f"init {kind} needs {starter.takes}, and {what}",
            hint=f"Write penstock init {kind} PATH.",
        )
    return file.resolve()


def write(starter: StarterKind, source: Path | None, folder: Path) -> list[str]:
    """Writes the folder; returns the names of what is in it. Raises CallerError before it writes
    anything."""
    written = []
    name = ""
    if source is not None:
        name = "model" if starter.folder else source.name
    texts = {each: starter.text(each, name, source) for each in starter.files}
    requirements = starter.requirements(source) if source is not None else []
    if requirements:
        texts["code/requirements.txt"] = "\n".join([*requirements, ""])
    folder.mkdir(parents=True, exist_ok=True)
    if source is not None:
        if starter.folder:
            shutil.copytree(source, folder / name)
        else:
            shutil.copyfile(source, folder / name)
        written.append(name)
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _name(path: Path) -> str:
    """A name for an endpoint, from a path."""
    stem = path.resolve().name.partition(".")[0]
    return re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-")[:63] or "model"
