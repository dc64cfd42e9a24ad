"""package.yaml: what makes a package of a model, or of many that differ in names and weights.

    schema: 1
    package: embed-${customer}            # with for_each: one package for each row
    version: "3"
    kind: embeddings                      # apply files choose packages by it; may be left out
    files:                                # a file, or a folder with everything in it
      - {from: "weights/${customer}.onnx", to: encoder/1/model.onnx}
    code: {from: code, version: latest, to: preprocess/1}     # the folder code/<version>
    templates:                            # ${...} in the file itself is given a value
      - {from: config.pbtxt, to: encoder/config.pbtxt, values: {rows_max: "8"}}
    for_each:
      - {customer: acme}

Templates know `package`, `version`, `code_version`, `kind` and the row's values beside their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.artifacts.description.yaml_keys import Keys
from penstock.core.apply.versioned_names import ENDPOINT_NAME
from penstock.packaging.spec_file import SpecFile

#: Part of a file's name, before a hyphen and the digest.
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.]{0,31}\Z")
LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A file or folder, and where it goes. Its text's values, if it is a template."""

    source: str
    to: str
    key: str  #: path of this entry in the file, for errors
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Inference code that has versions of its own."""

    folder: str  #: with one folder for each version
    version: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSpec:
    file: SpecFile
    name: str
    version: str
    kind: str
    files: tuple[Placed, ...]
    templates: tuple[Placed, ...]
    code: Code | None


def read_packages(path: Path, *, root: Path | None = None) -> list[PackageSpec]:
    """The packages that a file describes.

    Raises CallerError: `spec-not-found`, `spec-unreadable`, `spec-invalid`.
    """
    file = SpecFile(path, root=root)
    specs = [_package(file, tree, row) for tree, row in file.expanded(file.tree)]
    seen: set[str] = set()
    for spec in specs:
        if spec.name in seen:
            raise file.fail(
                "package", f"the package {spec.name} is made twice", "Put a value into its name."
            )
        seen.add(spec.name)
    return specs


def _package(file: SpecFile, tree: dict[str, Any], row: dict[str, str]) -> PackageSpec:
    keys = file.keys(tree)
    keys.integer("schema", 1, low=1, high=1, required=True)
    name = keys.text("package", required=True)
    if not ENDPOINT_NAME.fullmatch(name):
        raise keys.wrong("package", name, "1 to 63 letters and digits, with hyphens between them")
    spec = PackageSpec(
        file=file,
        name=name,
        version=_version(keys, required=True),
        kind=keys.text("kind"),
        files=tuple(_placed(file, keys, "files", row)),
        templates=tuple(_placed(file, keys, "templates", row)),
        code=_code(keys.section("code")),
    )
    keys.done()
    if spec.version == LATEST:
        raise keys.wrong("version", LATEST, "a version of this package's own")
    if not (spec.files or spec.templates or spec.code):
        raise file.fail("package", f"the package {name} is empty", "Give files, code or templates.")
    return spec


def _placed(file: SpecFile, keys: Keys, name: str, row: dict[str, str]) -> Iterator[Placed]:
    for raw, path in keys.mappings(name):
        for tree, values in file.expanded(raw, path, values=row):
            entry = file.keys(tree, path)
            placed = Placed(
                source=entry.text("from", required=True),
                to=entry.text("to", required=True),
                key=path,
                values=values | entry.text_map("values") if name == "templates" else {},
            )
            entry.done()
            yield placed


def _code(keys: Keys | None) -> Code | None:
    if keys is None:
        return None
    code = Code(
        folder=keys.text("from", required=True),
        version=_version(keys, LATEST),
        to=keys.text("to", "code"),
    )
    keys.done()
    return code


def _version(keys: Keys, default: str = "", *, required: bool = False) -> str:
    version = keys.text("version", default, required=required)
    if not VERSION.match(version):
        raise keys.wrong("version", version, "1 to 32 letters, digits and full stops, in quotes")
    return version
