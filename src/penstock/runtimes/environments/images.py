"""Which libraries the name of a framework's image stands for: data, and how a name is read.

Account, region and suffixes such as -cpu-py310-ubuntu20.04-sagemaker do not matter: no image is
pulled. The versions are those of AWS's own images, as their repositories and the list of deep
learning containers tell them; what is not of the framework itself is bounded only as far as the
framework needs it. The operator's own entries (`control.image_environments`) go before.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import Final

from penstock.runtimes.environments.requirements import name_of

#: What AWS's images of scikit-learn and XGBoost have beside the framework.
_TABLES: Final = ("pandas<3", "scipy", "joblib")
_BEFORE_NUMPY_2: Final = "numpy<2"

#: Version in the image's tag -> the framework's own version there.
_SCIKIT_LEARN: Final = {"0.20": "0.20.0", "0.23": "0.23.2", "1.0": "1.0.2", "1.2": "1.2.1",
                        "1.4": "1.4.2"}  # fmt: skip
_XGBOOST: Final = {"0.90": "0.90", "1.0": "1.0.0", "1.2": "1.2.0", "1.3": "1.3.3", "1.5": "1.5.2",
                   "1.7": "1.7.4"}  # fmt: skip
_VERSION: Final = r"(?P<version>\d+\.\d+(?:\.\d+)?)"
_TAG: Final = re.compile(rf"{_VERSION}(?:-(?P<revision>\d+))?(?:-|$)")
_NUMBERS: Final = re.compile(_VERSION)
_TRANSFORMERS: Final = "-transformers"


def requirements_of(image: str, own: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The requirements that an image stands for; () = it is no framework's image, or one without a
    version. `own`: the operator's table, pattern -> requirements.

    A pattern with `*`, `?` or `[` must match the whole URI; any other must be part of it.
    """
    for pattern, lines in own.items():
        whole = any(char in pattern for char in "*?[")
        if fnmatch.fnmatchcase(image, pattern) if whole else pattern and pattern in image:
            return lines
    repository, _, tag = image.rpartition("/")[2].lower().partition(":")
    found = _TAG.match(tag.partition("@")[0])
    if found is None:
        return ()
    version = found["version"]
    if repository == "sagemaker-scikit-learn":
        return _scikit_learn(version)
    if repository in ("sagemaker-xgboost", "xgboost"):
        return _xgboost(version, found["revision"] or "")
    if repository in ("pytorch-inference", "pytorch-training"):
        return _pytorch(version)
    if repository in ("huggingface-pytorch-inference", "huggingface-pytorch-training"):
        return _hugging_face(version, tag)
    if repository in ("tensorflow-inference", "tensorflow-training"):
        old = (_BEFORE_NUMPY_2,) if _below(version, 2, 18) else ()
        return (f"tensorflow=={version}{_every(version)}", *old)
    return ()


def merged(image: tuple[str, ...], file: tuple[str, ...]) -> tuple[str, ...]:
    """The image's requirements, and those of the model's file that it says nothing about."""
    named = {name_of(line) for line in image}
    return (*image, *(line for line in file if name_of(line) not in named))


def _scikit_learn(version: str) -> tuple[str, ...]:
    whole = _SCIKIT_LEARN.get(version, version)
    # The first version whose wheels are made for NumPy 2 is 1.4.2.
    old = (_BEFORE_NUMPY_2,) if _below(version, 1, 4) else ()
    return (f"scikit-learn=={whole}{_every(whole)}", *_TABLES, *old)


def _xgboost(version: str, revision: str) -> tuple[str, ...]:
    """From 3.0 on the tag's last number is the framework's patch: 3.0-5 has 3.0.5."""
    whole = _XGBOOST.get(version, version)
    if revision and not _below(version, 3, 0):
        whole = f"{version}.{revision}"
    # Its wrappers of scikit-learn changed with 1.6 there, for which only later versions are made.
    old = (_BEFORE_NUMPY_2, "scikit-learn<1.6") if _below(version, 2, 1) else ("scikit-learn",)
    tables: tuple[str, ...] = _TABLES
    if _below(version, 1, 6):
        # They import a class of pandas that ended with 2.0, and pkg_resources of setuptools.
        tables = ("pandas<2", *_TABLES[1:], "setuptools<81")
    return (f"xgboost=={whole}{_every(whole)}", *tables, *old)


def _pytorch(version: str) -> tuple[str, ...]:
    old = (_BEFORE_NUMPY_2,) if _below(version, 2, 3) else ()
    return (f"torch=={version}{_every(version)}", *old)


def _hugging_face(version: str, tag: str) -> tuple[str, ...]:
    found = _NUMBERS.match(tag.partition(_TRANSFORMERS)[2])
    if found is None:
        return _pytorch(version)
    transformers = f"transformers=={found['version']}{_every(found['version'])}"
    return (*_pytorch(version), transformers, "sentencepiece", "safetensors", "accelerate")


def _every(version: str) -> str:
    """Of a version without its third number, any patch."""
    return ".*" if version.count(".") == 1 and version not in _XGBOOST.values() else ""


def _below(version: str, major: int, minor: int) -> bool:
    numbers = [int(each) for each in version.split(".")]
    return (numbers[0], numbers[1]) < (major, minor)
