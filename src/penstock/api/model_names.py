"""Names of models in protocols that have a single field for them.

A name is `endpoint`, or `endpoint:target` for a target model of a multi-model endpoint or an
inference component of an endpoint that has components. Endpoint names have no colon, so the first
one ends them; the rest is the target's name, slashes and colons included.

Paths below /v2 name models too, and are parsed here:

    models/{model}[/versions/{version}][/{action}]
    models/{model}/trace/setting
    repository/index
    repository/models/{model}/{load | unload}

A model's name may be `endpoint:target`, and a target may have slashes, which clients of the
protocol send unencoded. So a path is parsed from its end: a part that could be an action or a
version is one. A target whose name ends like that needs its slashes written as %2F.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.errors import CallerError

#: The limit of TargetModel in AWS's model; the host checks the name below its prefix.
TARGET_CHARS_MAX: Final = 1024
_TARGET: Final = re.compile(r"[!-~][ -~]*")


class ModelName(NamedTuple):
    """A parsed name."""

    endpoint: str
    target: str | None = None

    def __str__(self) -> str:
        return self.endpoint if self.target is None else f"{self.endpoint}:{self.target}"


def parse(name: str) -> ModelName:
    """Raises CallerError (`target-model-invalid`)."""
    endpoint, colon, target = name.partition(":")
    if not colon:
        return ModelName(endpoint)
    if len(target) > TARGET_CHARS_MAX or not _TARGET.fullmatch(target):
        raise CallerError(
            "target-model-invalid",
            f"{name[:256]!r} names no target model",
            hint="Write ENDPOINT:TARGET_MODEL, the target as it lies below the endpoint's prefix: "
            f"1 to {TARGET_CHARS_MAX} printable ASCII characters, not a space first; or"
            " ENDPOINT:COMPONENT.",
        )
    return ModelName(endpoint, target)


def endpoint_of(name: str) -> str:
    """The endpoint that the name belongs to. Never raises."""
    return name.partition(":")[0]


GENERATE: Final = "generate"
GENERATE_STREAM: Final = "generate_stream"
INFERS: Final = ("infer", GENERATE, GENERATE_STREAM)
_ABOUT: Final = ("ready", "config", "stats")
#: The paths of Triton's extensions for settings.
LOGGING: Final = "logging"
TRACE: Final = ("trace", "setting")
TRACE_SETTING: Final = "/".join(TRACE)


#: First parts of the paths of Triton's extensions for shared memory.
SYSTEM_SHARED_MEMORY: Final = "systemsharedmemory"
CUDA_SHARED_MEMORY: Final = "cudasharedmemory"
SHARED_MEMORY_PATHS: Final = (SYSTEM_SHARED_MEMORY, CUDA_SHARED_MEMORY)


class OipTarget(NamedTuple):
    """The target of a path."""

    model: ModelName
    version: str
    #: "", infer, generate, generate_stream, ready, config, stats, trace/setting; load, unload
    action: str


def parts_of(path: bytes) -> list[str]:
    """The parts after /v2, each decoded."""
    parts = [unquote_to_bytes(part).decode("utf-8", "replace") for part in path.split(b"/")[2:]]
    if parts and not parts[-1]:
        parts.pop()
    return parts


def model_target(parts: list[str], path: bytes) -> OipTarget:
    """The target of the parts after `models`. Raises CallerError (404, `target-model-invalid`)."""
    name, version, action = split_model(parts)
    if not name or action not in ("", *INFERS, *_ABOUT, TRACE_SETTING):
        raise not_found(path)
    return OipTarget(parse(name), version, action)


def repository_target(parts: list[str], path: bytes) -> OipTarget:
    """The target of the parts after `repository/models`. Raises as `model_target` does."""
    *names, action = parts or [""]
    one_name = len(names) == 1 or (len(names) > 1 and ":" in names[0])
    if not one_name or not names[0] or action not in ("load", "unload"):
        raise not_found(path)
    return OipTarget(parse("/".join(names)), "", action)


def split_model(parts: list[str]) -> tuple[str, str, str]:
    """(name, version, action) of the parts after `models`, unchecked.

    An endpoint's name is one part, so anything after it that is no word of the protocol stays in
    `action`.
    """
    if ":" not in parts[0]:
        name, rest = parts[0], parts[1:]
        version = ""
        if rest[:1] == ["versions"] and len(rest) > 1:
            version, rest = rest[1], rest[2:]
        return name, version, "/".join(rest)
    rest, version, action = parts, "", ""
    if len(rest) > 2 and tuple(rest[-2:]) == TRACE:
        rest, action = rest[:-2], TRACE_SETTING
    elif len(rest) > 1 and rest[-1] in (*INFERS, *_ABOUT):
        rest, action = rest[:-1], rest[-1]
    if len(rest) > 2 and rest[-2] == "versions":
        rest, version = rest[:-2], rest[-1]
    return "/".join(rest), version, action


def not_found(path: bytes) -> CallerError:
    shown = path[:128].decode("latin-1")
    return CallerError("not-found", f"{shown} is not part of the protocol.", status=404)
