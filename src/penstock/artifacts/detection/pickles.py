"""What a pickle or a joblib file says of itself: which library made its object, in which version.

Nothing is unpickled. The opcodes are read as text is read: the classes that they name are listed,
and the first one that is no helper of the protocol is the object's own. joblib writes arrays
between the opcodes, where they can't be told apart from them; from there on names and versions are
searched for. So what is listed serves to choose a library and to word errors. It is no proof that
a file is harmless: every pickle can run any program, and only trust lets one be loaded.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickletools
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

from penstock.artifacts.detection.boosters import xgboost_version
from penstock.artifacts.files.paths import shown
from penstock.core.request.grants import TRUST_VARIABLE
from penstock.errors import CallerError

#: Bytes that are looked through, unpacked. Versions stand in the first of many trees.
READ_BYTES_MAX: Final = 64 << 20
_OPCODES_MAX: Final = 200_000
_HEAD_BYTES: Final = 512
_NAME_BYTES_MAX: Final = 200
#: Names of classes that are listed; a model of many parts names some dozens.
_NAMES_MAX: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class PickleFacts:
    """What was read."""

    root: str  #: the object's own class, such as "sklearn.svm._classes.SVC"; "" = a plain value
    names: frozenset[str]  #: classes and functions that it names
    versions: Mapping[str, str]  #: distribution -> its version, of those that say it
    columns: bool  #: whether it takes columns by their names
    features: int = 0  #: columns of the rows that it was fitted with; 0 = it does not say

    @property
    def library(self) -> str:
        """The package that made the object, such as "sklearn"; "" for a plain value."""
        return self.root.partition(".")[0]

    @property
    def packages(self) -> frozenset[str]:
        """All packages that are needed to load it."""
        return frozenset(name.partition(".")[0] for name in self.names)


#: The attribute, an optional memo (MEMOIZE, BINPUT, LONG_BINPUT), the head of a text, a version.
_SKLEARN_VERSION: Final = re.compile(
    rb"_sklearn_version(?:\x94|q.|r.{4})?(?:\x8c.|X.{4}|U.|V)"
    rb"(\d+\.\d+(?:\.\d+)?(?:rc\d+|\.post\d+|\.dev\d+)?)",
    re.DOTALL,
)
#: The attribute, an optional memo, and an integer of one, two or four bytes.
_FEATURES: Final = re.compile(rb"n_features_in_(?:\x94|q.|r.{4})?(?:K(.)|M(..)|J(....))", re.DOTALL)
#: The first bytes of a compressed file, and what unpacks it. joblib writes all of them.
_UNPACK: Final[tuple[tuple[bytes, Callable[[IO[bytes]], Any]], ...]] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ", lzma.LZMAFile),
    (b"]\x00\x00", lzma.LZMAFile),
)
_ZLIB: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
#: Helpers that stand before the class of the object that is restored.
_HELPERS: Final = ("copyreg", "copy_reg", "builtins", "__builtin__", "collections", "_codecs")


def pickle_facts(path: Path) -> PickleFacts | None:
    """None for a file that is no pickle, packed or not."""
    status = path.stat()
    return _read_facts(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)  # several runtimes ask about one file
def _read_facts(path: Path, _mtime_ns: int, _size: int) -> PickleFacts | None:
    text = _unpacked(path)
    if not _begins_pickle(text):
        return None
    names = list(islice(_names(text), _NAMES_MAX))
    root = next((name for name in names if name.partition(".")[0] not in _HELPERS), "")
    sklearn, features = _SKLEARN_VERSION.search(text), _FEATURES.search(text)
    return PickleFacts(
        root=root,
        names=frozenset(names),
        versions={
            "scikit-learn": sklearn.group(1).decode() if sklearn else "",
            "xgboost": xgboost_version(text) if b"xgboost" in text else "",
        },
        columns=any(one in text for one in _BY_NAME),
        features=int.from_bytes(next(filter(None, features.groups())), "little") if features else 0,
    )


def _begins_pickle(text: bytes) -> bool:
    """A protocol's header, or the opcode with which protocols 0 and 1 restore an object."""
    if text[:1] == b"\x80":
        return len(text) > 2 and 2 <= text[1] <= 5
    return text[:1] == b"c" and bool(_global_at(text, 1))


def _global_at(text: bytes, at: int) -> str:
    """The class whose module and name stand there, each with a line's end; "" = there is none."""
    middle = text.find(b"\n", at, at + _NAME_BYTES_MAX)
    end = text.find(b"\n", middle + 1, middle + 1 + _NAME_BYTES_MAX)
    if middle < 0 or end < 0:
        return ""
    found = (text[at:middle] + b"." + text[middle + 1 : end]).decode("latin-1")
    return found if all(part.isidentifier() for part in found.split(".")) else ""


def _unpacked(path: Path) -> bytes:
    """The first bytes, unpacked; b"" for a file that is no pickle."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
        file.seek(0)
        try:
            if head[:2] in _ZLIB:
                return zlib.decompressobj().decompress(file.read(READ_BYTES_MAX), READ_BYTES_MAX)
            for magic, unpack in _UNPACK:
                if head.startswith(magic):
                    return bytes(unpack(file).read(READ_BYTES_MAX))
        except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError):
            return b""
        return file.read(READ_BYTES_MAX) if _begins_pickle(head) else b""


def _names(text: bytes) -> Iterator[str]:
    """The classes in the order in which they are named: by opcodes as far as these can be read,
    then by what looks like them."""
    texts: list[str] = []  #: the last two texts that were pushed
    memo: dict[int, str | None] = {}
    last: str | None = None  #: what was pushed last, if it is a text
    at = 0
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(text)):
            if count > _OPCODES_MAX:
                break
            at, name = position or 0, opcode.name
            if name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
                memo[len(memo) if name == "MEMOIZE" else int(str(argument))] = last
                continue
            last = None
            if name in ("GLOBAL", "INST"):
                yield str(argument).replace(" ", ".")
            elif name == "STACK_GLOBAL" and len(texts) == 2:
                yield ".".join(texts)
            elif "UNICODE" in name:
                last = str(argument)
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                last = memo.get(int(str(argument)))
            if last is not None:
                texts = [*texts[-1:], last]
    except (ValueError, IndexError, OverflowError, MemoryError):
        pass  # bytes of an array, or the end of what was read
    for package in _PACKAGES:
        begin = text.find(package, at)
        while begin >= 0:
            if text[begin - 1 : begin] == b"c":
                yield _global_at(text, begin) or package.decode()
            elif text[begin - 2 : begin - 1] == b"\x8c":  # a short text of protocols from 4 on
                yield text[begin : begin + text[begin - 1]].decode("latin-1")
            begin = text.find(package, begin + len(package))


#: Packages whose modules are looked for behind the first array.
_PACKAGES: Final = (b"sklearn", b"xgboost", b"lightgbm", b"catboost", b"pandas", b"imblearn")


#: Package -> the distribution that has it. Others can't be told from their names.
_DISTRIBUTIONS: Final = {
    "sklearn": "scikit-learn", "xgboost": "xgboost", "lightgbm": "lightgbm",
    "catboost": "catboost", "imblearn": "imbalanced-learn", "category_encoders":
    "category-encoders", "joblib": "joblib", "pandas": "pandas", "scipy": "scipy",
    "statsmodels": "statsmodels", "polars": "polars",
}  # fmt: skip
#: Texts of models that take columns by name.
_BY_NAME: Final = (b"feature_names_in_", b"ColumnTransformer", b"pandas_categorical")


def requirements(facts: PickleFacts) -> tuple[str, ...]:
    """What an environment needs to load it, in the versions that it was made with where it names
    them."""
    versions = facts.versions
    wanted = {_DISTRIBUTIONS[name] for name in facts.packages if name in _DISTRIBUTIONS}
    if facts.root.startswith(("xgboost.sklearn", "lightgbm.sklearn")):
        wanted.add("scikit-learn")
    if facts.columns:
        wanted.add("pandas")
    lines = [f"{name}=={versions[name]}" if versions.get(name) else name for name in sorted(wanted)]
    return (*lines, *beside_sklearn(versions.get("scikit-learn", "")))


def beside_sklearn(version: str) -> tuple[str, ...]:
    """Releases of scikit-learn before 1.4.2 were built for numpy 1 and do not say so."""
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
    return ("numpy<2",) if version and numbers < (1, 4, 2) else ()


def untrusted(file: str, facts: PickleFacts, better: str) -> CallerError:
    """The error for a pickle that nobody vouched for. `better`: how its library saves the same
    model in a form that runs no code."""
    made_by = f" of {facts.root}" if facts.root else ""
    return CallerError(
        "artifact-untrusted",
        f"{shown(file)} is a pickle{made_by}: loading it can run any program",
        hint=f"If it is your own: penstock deploy NAME FOLDER --trust (or {TRUST_VARIABLE}=true in "
        f"the Environment of CreateModel). Better, save it without code: {better}",
    )
