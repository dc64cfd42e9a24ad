"""package.yaml: how a model, or many that differ in names and weights, becomes packages.

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

Templates may use `package`, `version`, `code_version`, `kind` and the row's values, besides their
own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import field

from penstock.core.apply.plan import ENDPOINT_NAME
from penstock.file_schema import Keys, Version, matching
from penstock.packaging.spec_file import Entry, SpecFile

#: A version is part of a file's name, before a hyphen and the digest.
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.]{0,31}")
LATEST = "latest"
_Version = Annotated[str, matching(VERSION, "1 to 32 letters, digits and full stops, in quotes")]
#: A valid name of an endpoint or a package.
Name = Annotated[
    str, matching(ENDPOINT_NAME, "1 to 63 letters and digits, with hyphens between them")
]


class Placed(Entry, kw_only=True):
    """A file or folder, and its place in the package."""

    source: str = field(name="from")  #: path below the file's folder
    to: str  #: path in the package; ending in /, the folder that it goes into


class PackageTemplate(Placed, kw_only=True):
    """A text file in which each `${...}` is replaced by a value."""

    #: values besides those of the row, and `package`, `version`, `code_version` and `kind`
    values: dict[str, str] = field(default_factory=dict)


class Code(Keys, kw_only=True):
    """Inference code that has versions of its own."""

    folder: str = field(name="from")  #: folder that contains one folder for each version
    version: _Version = LATEST  #: `latest` = the highest in numeric order
    to: str = "code"


class PackageKeys(Entry, kw_only=True):
    """A package.yaml: what makes a package of a model, or of many."""

    schema: Version
    package: Name  #: the package's name; with `for_each` it contains a row's value
    version: _Version  #: in quotes, since it is text
    kind: str = ""  #: a word by which apply files may choose packages
    files: tuple[Placed, ...] = ()  #: files, or folders with everything in them
    templates: tuple[PackageTemplate, ...] = ()
    code: Code | None = None


class PackageSpec(NamedTuple):
    """One package: what its file says of it, for one row."""

    file: SpecFile
    keys: PackageKeys

    @property
    def name(self) -> str:
        return self.keys.package


def read_packages(path: Path, *, root: Path | None = None) -> list[PackageSpec]:
    """The packages that a file describes.

    Raises CallerError: `spec-not-found`, `spec-unreadable`, `spec-invalid`.
    """
    file = SpecFile(path, root=root)
    specs: dict[str, PackageSpec] = {}
    for keys in file.read_each(PackageKeys):
        name = keys.package
        if keys.version == LATEST:
            raise file.wrong("version", LATEST, "a version of this package's own")
        if not (keys.files or keys.templates or keys.code):
            cause = f"the package {name} is empty"
            raise file.fail("package", cause, "Give files, code or templates.")
        if name in specs:
            cause = f"the package {name} is made twice"
            raise file.fail("package", cause, "Put a value into its name.")
        specs[name] = PackageSpec(file, keys)
    return list(specs.values())
