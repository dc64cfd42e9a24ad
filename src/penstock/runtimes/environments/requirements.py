"""What a model asks for, from files of its artifact, which are not to be trusted.

Read strictly: a line is a requirement as PEP 508 writes it, or one of the options below. Whatever
would let an artifact choose where packages come from (an index, a URL, a path outside of it) is
refused by name, unless the operator lists its beginning in `control.environment_indexes`. Nothing
is expanded, and nothing of a line ever reaches a shell.

The format is pip's: https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.errors import CallerError

FILE: Final = "requirements.txt"
#: Folders beside it that hold wheels.
WHEEL_FOLDERS: Final = ("wheels", "wheelhouse")
_BYTES_MAX: Final = 1 << 20
_LINES_MAX: Final = 5000
_DEPTH_MAX: Final = 8  #: of files that name others

_WORD: Final = re.compile(r"[A-Za-z0-9._-]+")
_VERSION: Final = re.compile(r"[A-Za-z0-9_.*+!-]+")
_MARKER: Final = re.compile(r"[\w\s.'\"<>=!~()+*,-]+")
_CHOICE: Final = re.compile(r"[A-Za-z0-9._,:-]+")
_HEX: Final = re.compile(r"[0-9a-f]{64,128}")
#: Longer ones before those that they begin with.
_OPERATORS: Final = ("===", "==", "~=", "!=", "<=", ">=", "<", ">")
_HASH: Final = "--hash="

#: Options that change nothing but which of several builds is taken.
_PASSED: Final = ("--pre", "--prefer-binary", "--require-hashes")
_CHOICES: Final = ("--only-binary", "--no-binary")
_SOURCES: Final = ("--index-url", "--extra-index-url", "--trusted-host", "--find-links")
_SHORT: Final = {"-i": "--index-url", "-f": "--find-links", "-r": "--requirement",
                 "-c": "--constraint", "-e": "--editable"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementSet:
    """What is to be installed. Lines are normalized: the same wishes give the same set."""

    lines: tuple[str, ...] = ()  #: sorted
    constraints: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  #: of the installer, such as --pre
    wheels: tuple[Path, ...] = ()  #: folders of the artifact with wheels
    files: tuple[Path, ...] = ()  #: wheels of the artifact that are requirements themselves
    #: Name of each wheel that may be read -> the SHA-256 of its content
    digests: Mapping[str, str] = field(default_factory=dict)
    no_index: bool = False  #: only the artifact's own wheels are taken

    @property
    def is_empty(self) -> bool:
        return not self.lines and not self.files

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name_of(line) for line in self.lines) | {
            canonical(each.name.partition("-")[0]) for each in self.files
        }


def canonical(name: str) -> str:
    """A package's name in the form in which all its spellings are equal."""
    parts = name.lower().replace("_", "-").replace(".", "-").split("-")
    return "-".join(filter(None, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequirement:
    """A requirement in its parts."""

    name: str  #: canonical
    extras: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()  #: such as ">=1.2", sorted
    url: str = ""
    marker: str = ""
    hashes: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        return self.name + (f"[{','.join(self.extras)}]" if self.extras else "")

    def __str__(self) -> str:
        whole = self.package
        whole += f" @ {self.url}" if self.url else ",".join(self.versions)
        whole += f" ; {self.marker}" if self.marker else ""
        return " ".join([whole, *(f"{_HASH}{each}" for each in self.hashes)])


def parsed(line: str) -> ParsedRequirement:
    """Raises ValueError with what is wrong with it."""
    words = line.split()
    hashes = sorted({_checked_hash(each) for each in words if each.startswith(_HASH)})
    text, _, marker = " ".join(each for each in words if not each.startswith(_HASH)).partition(";")
    if marker and not _MARKER.fullmatch(marker):
        raise ValueError(_WANTED)
    text, _, url = text.partition("@")
    end = next((at for at, char in enumerate(text) if char in "[(<>=!~ "), len(text))
    name, rest = text[:end], text[end:].strip()
    extras = ""
    if rest.startswith("["):
        extras, closed, rest = rest[1:].partition("]")
        rest = rest.strip()
        if not closed or not extras.strip():
            raise ValueError(_WANTED)
    if rest.startswith("(") and rest.endswith(")"):
        rest = rest[1:-1]
    if url and (rest or len(url.split()) != 1):
        raise ValueError(_WANTED)
    return ParsedRequirement(
        name=_checked_name(name),
        extras=tuple(sorted(_checked_name(each) for each in extras.split(",") if extras)),
        versions=tuple(sorted(_checked_version(each) for each in rest.split(",") if rest)),
        url=url.strip(),
        marker=" ".join(marker.split()),
        hashes=tuple(hashes),
    )


_WANTED: Final = "a requirement such as scikit-learn==1.2.2, of a package on the index"


def _checked_name(text: str) -> str:
    name = text.strip()
    if not _WORD.fullmatch(name) or not (name[0].isalnum() and name[-1].isalnum()):
        raise ValueError(_WANTED)
    return canonical(name)


def _checked_version(text: str) -> str:
    clause = "".join(text.split())
    operator = next((each for each in _OPERATORS if clause.startswith(each)), "")
    if not operator or not _VERSION.fullmatch(clause[len(operator) :]):
        raise ValueError(_WANTED)
    return clause


def _checked_hash(text: str) -> str:
    value = text.removeprefix(_HASH).lower()
    algorithm, _, digest = value.partition(":")
    if algorithm not in ("sha256", "sha384", "sha512") or not _HEX.fullmatch(digest):
        raise ValueError("a hash such as --hash=sha256:... with all its digits")
    return value


def name_of(line: str) -> str:
    """The canonical name of a requirement's package; "" = it is none."""
    try:
        return parsed(line).name
    except ValueError:
        return ""


def without_versions(line: str) -> str:
    """A requirement of any version."""
    try:
        return parsed(line).package
    except ValueError:
        return line


def normalized(line: str) -> str:
    """A requirement in its one form. Raises ValueError with what is wrong with it."""
    return str(parsed(line))


def checked_line(line: str) -> str:
    """A line of model.yaml's `requirements`, normalized. Raises ValueError."""
    if line.lstrip().startswith("-"):
        raise ValueError("a requirement; options belong into requirements.txt")
    if " @ " in (whole := normalized(line)):
        raise ValueError("a requirement without a URL")
    return whole


def read_requirements(
    root: Path, code_file: str, lines: tuple[str, ...] = (), *, allowed: tuple[str, ...] = ()
) -> RequirementSet:
    """The requirements of an artifact: those of its file, if it has one, and `lines`.

    `code_file`: the model's code, beside which the file is looked for; `allowed`: beginnings of
    URLs that the operator allows. Raises CallerError (`requirements-refused`).
    """
    reading = _Reading(root.resolve(), allowed)
    path = requirements_file(root, code_file)
    if path is not None:
        reading.file(path, constraints=False)
        for name in WHEEL_FOLDERS:
            if (path.parent / name).is_dir():
                reading.add_folder(path.parent / name)
    reading.lines |= {checked_line(line) for line in lines}
    return reading.done()


def requirements_file(root: Path, code_file: str) -> Path | None:
    """Beside the code file or in code/; at the root where the code lies there, or in a folder that
    is a version of a Triton model."""
    beside = (root / code_file).parent if code_file else root
    folders = [beside, root / "code"]
    if beside == root or beside.name.isdigit():
        folders.append(root)
    for folder in folders:
        if (folder / FILE).is_file():
            return folder / FILE
    return None


class _Reading:
    """One artifact's files, while they are read."""

    def __init__(self, root: Path, allowed: tuple[str, ...]) -> None:
        self._root = root
        self._allowed = allowed
        self.lines: set[str] = set()
        self._constraints: set[str] = set()
        self._options: list[str] = []
        self._folders: dict[Path, None] = {}
        self._files: dict[Path, None] = {}
        self._no_index = False
        self._count = 0
        self._open: list[Path] = []

    def done(self) -> RequirementSet:
        digests = {}
        for folder in self._folders:
            for each in sorted(folder.iterdir()):
                if each.is_file() and each.suffix in (".whl", ".gz", ".zip"):
                    digests[each.name] = _digest(each)
        digests |= {each.name: _digest(each) for each in self._files}
        return RequirementSet(
            lines=tuple(sorted(self.lines)),
            constraints=tuple(sorted(self._constraints)),
            options=tuple(self._options),
            wheels=tuple(self._folders),
            files=tuple(self._files),
            digests=digests,
            no_index=self._no_index,
        )

    def file(self, path: Path, *, constraints: bool) -> None:
        shown = path.resolve().relative_to(self._root).as_posix()
        if path in self._open:
            raise _refused(shown, 0, "the file names itself")
        if len(self._open) >= _DEPTH_MAX:
            raise _refused(shown, 0, f"more than {_DEPTH_MAX} files that name one another")
        if path.stat().st_size > _BYTES_MAX:
            raise _refused(shown, 0, f"it is larger than {_BYTES_MAX} bytes")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise _refused(shown, 0, "it is not UTF-8 text") from None
        self._open.append(path)
        for number, line in _logical_lines(text):
            self._count += 1
            if self._count > _LINES_MAX:
                raise _refused(shown, number, f"more than {_LINES_MAX} lines")
            try:
                self._line(line, path.parent, constraints)
            except ValueError as error:
                raise _refused(shown, number, f"{line[:200]!r}: {error}") from None
        self._open.pop()

    def _line(self, line: str, folder: Path, constraints: bool) -> None:
        """Raises ValueError for what is refused."""
        if line.startswith("-"):
            self._option(line, folder)
            return
        if not constraints and (line.endswith(".whl") or line.startswith((".", "/", "file:"))):
            self._files[self._wheel(line, folder)] = None
            return
        whole = normalized(line)
        url = whole.partition(" @ ")[2]
        if url:
            self._may(url.split(" ")[0])
        (self._constraints if constraints else self.lines).add(whole)

    def _option(self, line: str, folder: Path) -> None:
        name, value = _split(line)
        name = _SHORT.get(name, name)
        if name in ("--requirement", "--constraint"):
            self.file(self._inside(value, folder), constraints=name == "--constraint")
        elif name == "--no-index" and not value:
            self._no_index = True
        elif name in _PASSED and not value:
            self._options.append(name)
        elif name in _CHOICES and _CHOICE.fullmatch(value):
            self._options += [name, value]
        elif name == "--find-links" and "://" not in value and not value.startswith("file:"):
            self.add_folder(self._inside(value, folder))
        elif name in _SOURCES and value:
            self._may(value)
            self._options += [name, value]
        elif name == "--editable":
            raise ValueError("an editable installation is refused: pack a wheel beside the file")
        else:
            raise ValueError(f"the option {name} is refused")

    def _may(self, place: str) -> None:
        """Raises ValueError unless the operator allows packages from there."""
        if any(each and place.startswith(each) for each in self._allowed):
            return
        raise ValueError(
            "packages come from the server's index or from the artifact's own wheels, not from "
            f"{place[:100]!r}"
        )

    def add_folder(self, folder: Path) -> None:
        """A folder of the artifact with wheels."""
        if not folder.is_dir():
            raise ValueError("the artifact has no such folder")
        self._folders[folder] = None

    def _wheel(self, text: str, folder: Path) -> Path:
        if text.startswith("file:") or "://" in text:
            raise ValueError("a file is named by its path inside the artifact")
        path = self._inside(text, folder)
        if path.suffix != ".whl" or not path.is_file():
            raise ValueError("of the artifact's own files only wheels (*.whl) can be installed")
        return path

    def _inside(self, text: str, folder: Path) -> Path:
        """A path of the artifact, from the file's own folder or from the root."""
        if not text or text.startswith("~") or "\0" in text:
            raise ValueError("it names no path of the artifact")
        for base in (folder, self._root):
            path = (base / text).resolve()
            if not path.is_relative_to(self._root):
                raise ValueError("the path leads out of the artifact")
            if path.exists():
                return path
        raise ValueError("the artifact has no such file")


def _split(line: str) -> tuple[str, str]:
    """An option's name and its value."""
    name, _, value = line.partition("=") if line.startswith("--") else (line, "", "")
    if " " in name or not value:
        name, _, value = line.partition(" ")
    if not name.startswith("--") and len(name) > 2:
        name, value = name[:2], name[2:] + value
    return name.strip(), value.strip().strip("\"'")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, those that end in a backslash joined with the next."""
    begun, parts = 0, ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _without_comment(raw)
        begun = begun or number
        if line.endswith("\\"):
            parts += line[:-1] + " "
            continue
        whole = (parts + line).strip()
        if whole:
            yield begun, whole
        begun, parts = 0, ""
    if parts.strip():
        yield begun, parts.strip()


def _without_comment(line: str) -> str:
    """A comment begins at the line's beginning, or after a space."""
    at = line.find("#")
    while at > 0 and not line[at - 1].isspace():
        at = line.find("#", at + 1)
    return line if at < 0 else line[:at].rstrip()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refused(where: str, number: int, words: str) -> CallerError:
    return CallerError(
        "requirements-refused",
        f"{where}{f', line {number}' if number else ''}: {words}",
        hint="Name packages by name and version, or put wheels into a folder wheels/ beside the "
        "file. Other places are the operator's to allow (control.environment_indexes).",
    )
