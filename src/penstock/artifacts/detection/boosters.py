"""Model files of XGBoost, LightGBM and CatBoost: their forms, and what they say of themselves.

XGBoost has four forms: JSON and UBJSON of `save_model`, the binary form that it wrote before 3.1
("binf" or headless), and pickles. UBJSON keys have their length before them: `L`, 8 bytes, the key.
The binary form begins with LearnerModelParam, 136 bytes with the version of XGBoost at 20, then the
objective's name (dmlc/xgboost: src/learner.cc). LightGBM writes text, CatBoost "CBM1" and the size
of what follows (catboost: catboost/libs/model/model.cpp).
"""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path
from typing import Final

from penstock.artifacts.files.paths import shown
from penstock.errors import CallerError

_HEAD_BYTES: Final = 64 << 10

_JSON_VERSION: Final = re.compile(rb"\"version\"\s*:\s*\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_UBJ: Final = re.compile(rb"\{L\0\0\0\0\0\0\0.(?:learner|version|Config|Model)", re.DOTALL)
_KEYS: Final = (b'"gradient_booster"', b'"learner_model_param"')
_OBJECTIVE: Final = re.compile(rb"(?:reg|binary|multi|rank|count|survival):[a-z:\-]{2,40}\Z")
_PARAM_BYTES: Final = 136

JSON, UBJ, BINARY = "JSON", "UBJSON", "binary"


def xgboost_form(path: Path) -> str:
    """JSON | UBJSON | binary; "" for a file that is none of these."""
    head, _ = _ends(path)
    if _UBJ.match(head):
        return UBJ
    if head.lstrip()[:1] == b"{" and b'"learner"' in head and any(key in head for key in _KEYS):
        return JSON
    return BINARY if _is_binary(head) else ""


def xgboost_requirement(path: Path, file: str) -> str:
    """The version of XGBoost that reads the file best: the one that wrote it. Raises CallerError
    (`model-file-invalid`) for a file without its end."""
    form, (head, tail) = xgboost_form(path), _ends(path)
    if form == BINARY:
        major, minor = struct.unpack_from("<II", head.removeprefix(b"binf"), 20)
        if 1 <= major <= 3 and minor < 100:
            return f"xgboost=={major}.{minor}.*"
        return "xgboost<2"  # written before 1.0; 3.1 and later don't read this form
    if not tail.rstrip().endswith(b"}"):
        raise cut_short(file, f"XGBoost's {form}")
    version = xgboost_version(head + tail)
    return f"xgboost=={version}" if version else "xgboost"


def xgboost_version(data: bytes) -> str:
    """The version in the JSON or UBJSON of a model, also inside other data; "" = there is none."""
    found = _JSON_VERSION.search(data)
    if found:
        return b".".join(found.groups()).decode()
    key = b"L" + struct.pack(">Q", 7) + b"version["
    at = data.rfind(key) + len(key)
    if at < len(key):
        return ""
    if data[at : at + 1] == b"#":  # the number of elements, which is 3
        at += 2 + _INTEGERS.get(data[at + 1 : at + 2], ("", 0))[1]
    numbers = []
    for _ in range(3):
        code, size = _INTEGERS.get(data[at : at + 1], ("", 0))
        if not size or len(data) < at + 1 + size:
            return ""
        numbers.append(str(struct.unpack_from(code, data, at + 1)[0]))
        at += 1 + size
    return ".".join(numbers)


#: UBJSON's integers: marker -> (struct's code, bytes).
_INTEGERS: Final = {
    b"i": (">b", 1), b"U": (">B", 1), b"I": (">h", 2), b"l": (">i", 4), b"L": (">q", 8),
}  # fmt: skip


def _is_binary(head: bytes) -> bool:
    head = head.removeprefix(b"binf")
    if len(head) < _PARAM_BYTES + 16:
        return False
    (length,) = struct.unpack_from("<Q", head, _PARAM_BYTES)
    begin = _PARAM_BYTES + 8
    return length <= 64 and _OBJECTIVE.match(head[begin : begin + length]) is not None


def _ends(path: Path) -> tuple[bytes, bytes]:
    """The first and the last bytes."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
        file.seek(max(0, file.seek(0, 2) - _HEAD_BYTES))
        return head, file.read()


_LIGHTGBM: Final = re.compile(rb"tree\r?\nversion=v\d+\r?\n")


def is_lightgbm(path: Path) -> bool:
    head, _ = _ends(path)
    return _LIGHTGBM.match(head) is not None


def check_lightgbm(path: Path, file: str) -> None:
    """Raises CallerError (`model-file-invalid`)."""
    with open(path, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if text.find(b"\nend of trees") < 0:
            raise cut_short(file, "LightGBM's text")


_CBM: Final = b"CBM1"


def is_catboost(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_CBM)) == _CBM


def check_catboost(path: Path, file: str) -> None:
    """Raises CallerError (`model-file-invalid`)."""
    with open(path, "rb") as opened:
        head = opened.read(len(_CBM) + 4)
    size = path.stat().st_size
    if len(head) < len(_CBM) + 4 or size < len(head) + int.from_bytes(head[-4:], "little"):
        raise cut_short(file, "CatBoost's")


def cut_short(file: str, form: str) -> CallerError:
    return CallerError(
        "model-file-invalid",
        f"{shown(file)}: {form} model file, and its end is missing",
        hint="Save it again; a copy may have been cut short.",
    )
