"""Names under which a model is served besides its endpoint's SageMaker name.

SageMaker's names have letters, digits and hyphens; those of Triton's models and of language
models have `_ . / :` too. An endpoint's tags say under which other names it is served, since every
SDK can set tags. A tag's value is a name, or several separated by spaces. `NAME=TARGET` names a
target model of a multi-model endpoint, or an inference component; `@models` all target models of
a multi-model endpoint, each under its own name. More keys make room for more:

    penstock:served-name    densenet_onnx
    penstock:served-name:2  Qwen/Qwen3-0.6B qwen3:0.6b

A name is a model's name in the paths of protocols, where clients send its slashes as they are. So a
part behind a slash is no word of these paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.errors import CallerError

TAG: Final = "penstock:served-name"
#: In place of a name: a name that nothing else has is that of a target model. One endpoint may.
MODELS: Final = "@models"
NAME_CHARS_MAX: Final = 256  #: SageMaker's bound for the value of a tag
_PART: Final = r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]*"
_NAME: Final = re.compile(rf"{_PART}(/{_PART})*")
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9]+")  #: in a SageMaker name
#: Words of the Open Inference Protocol's paths behind a model's name.
_PATH_WORDS: Final = frozenset(
    ("versions", "infer", "generate", "generate_stream", "ready", "config", "stats", "load",
     "unload", "trace")
)  # fmt: skip


def is_tag(key: str) -> bool:
    return key == TAG or key.startswith(f"{TAG}:")


def of_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Name -> target, "" for the endpoint itself. What is no name is left out: a tag may be older
    than its meaning."""
    found: dict[str, str] = {}
    for name, target in _entries(tags):
        if not _fault(name):
            found.setdefault(name, target)
    return found


def check(tags: Mapping[str, str]) -> None:
    """Raises CallerError (`served-name-invalid`) for names that can't be served."""
    empty = [key for key in tags if is_tag(key) and not tags[key].split()]
    if empty:
        raise _invalid(f"the tag {min(empty)} has no name")
    seen: set[str] = set()
    for name, _ in _entries(tags):
        fault = _fault(name)
        if fault:
            raise _invalid(f"{name[:NAME_CHARS_MAX]!r} {fault}")
        if name.lower() in seen:
            raise _invalid(f"{name!r} is there twice; case does not tell names apart")
        seen.add(name.lower())


def endpoints_named_by(name: str) -> list[str]:
    """In lower case, the endpoints that `name` would be for if nothing were served under it: by
    itself, or as `endpoint:target`. None of them may be another endpoint."""
    lower = name.lower()
    return [lower, *(lower[:at] for at, letter in enumerate(lower) if letter == ":")]


def tags_for(names: Iterable[str], tags: Mapping[str, str]) -> dict[str, str]:
    """Tags that add `names` (each may be NAME=TARGET) to what `tags` say, one name in each."""
    known = dict(_entries(tags))
    added: dict[str, str] = {}
    number = 1
    for entry in dict.fromkeys(names):
        name, _, target = entry.partition("=")
        if known.get(name) == target:
            continue
        while (key := TAG if number == 1 else f"{TAG}:{number}") in tags:
            number += 1
        number += 1
        added[key] = entry
    return added


def listed(names: Mapping[str, str]) -> dict[str, str]:
    """Those of `of_tags` that are names of one model each."""
    return {name: target for name, target in names.items() if name != MODELS}


def legal_endpoint_name(name: str) -> str:
    """An endpoint's name that is as close to `name` as SageMaker's pattern allows; may be empty."""
    return _ILLEGAL.sub("-", name)[:63].strip("-")


def _entries(tags: Mapping[str, str]) -> list[tuple[str, str]]:
    """(name, target), in the order of the tags' keys."""
    found = []
    for key in sorted(key for key in tags if is_tag(key)):
        for entry in tags[key].split():
            name, _, target = entry.partition("=")
            found.append((name, target))
    return found


def _fault(name: str) -> str:
    """What keeps `name` from being served; "" if nothing does."""
    if name == MODELS:
        return ""
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        return (
            f"is no model's name: 1 to {NAME_CHARS_MAX} letters, digits and _ . : / @ + -, with a"
            " letter, a digit or _ first and behind each slash"
        )
    _, *others = name.split("/")
    word = next((part for part in others if part in _PATH_WORDS), "")
    if word:
        return f"has the part {word!r}, a word of the protocol's paths"
    return "is a path of the protocol" if name == "stats" else ""


def _invalid(cause: str) -> CallerError:
    return CallerError(
        "served-name-invalid",
        f"The endpoint can't be served under this name: {cause}",
        hint=f"Write NAME, NAME=TARGET or {MODELS} into the tag {TAG}, with a space between two.",
    )
