"""`penstock package`: archives of models from a file that describes them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options
from penstock.cli.output import note, print_json, print_table
from penstock.errors import CallerError

if TYPE_CHECKING:
    from penstock.packaging.build import Built

#: Most packages that are listed one by one; with more, only counts are shown.
_ROWS_MAX = 20


def package(
    file: Annotated[Path, typer.Argument(help="package.yaml.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for archives [build, beside the file].")
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of the sources [the file's].")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace versions that are there with others.")
    ] = False,
    check: Annotated[
        bool, typer.Option(help="See whether the first package is a model that is served.")
    ] = True,
    json_: options.Json = False,
) -> None:
    """Pack models, the same bytes each time; versions that are there are not made again."""
    from penstock.packaging.build import build, check_served  # noqa: PLC0415 - when it is used
    from penstock.packaging.package_spec import read_packages  # noqa: PLC0415

    folder = out or file.parent / "build"
    built = build(read_packages(file, root=root), folder, replace_=replace)
    if json_:
        print_json([_fields(each, folder) for each in built])
    else:
        _show(built, folder)
    if check and built[0].state != "unchanged":
        try:
            runtime = check_served(built[0].package, folder)
            note(f"{built[0].package.file} is a model for the runtime {runtime}")
        except CallerError as error:
            # No failure: some files become a model only on the server, where weights are compiled.
            note(f"note: {built[0].package.file}: {error.message}\nhint: {error.hint}")


def _fields(built: Built, folder: Path) -> dict[str, object]:
    package_ = built.package
    return {
        "name": package_.name,
        "version": package_.version,
        "kind": package_.kind,
        "state": built.state,
        "archive": str(folder / package_.file),
        "digest": package_.digest,
        "sha256": package_.sha256,
        "bytes": package_.size,
        "code_version": package_.code_version,
    }


def _show(built: list[Built], folder: Path) -> None:
    rows = [
        (each.package.name, each.package.version, each.state, each.package.size, each.package.file)
        for each in built
    ]
    if len(rows) <= _ROWS_MAX:
        print_table(
            f"packages in {folder}", ("package", "version", "state", "bytes", "archive"), rows
        )
    counts = Counter(each.state for each in built)
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    note(f"{len(built)} packages in {folder}: {words}")
