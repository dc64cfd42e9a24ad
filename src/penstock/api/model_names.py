"""Names of models in protocols that have a single field for them.

A name is `endpoint`, or `endpoint:target` for a target model of a multi-model endpoint or an
inference component of an endpoint that has components. Endpoint names have no colon, so the first
one ends them; the rest is the target's name, slashes and colons included.

A name under which an endpoint is served besides (`core/deployment/served_names.py`) stands for the
endpoint, and wins over these forms. Doors and access checks resolve it here, in the same way, and
only the endpoint's own name goes further on. Answers carry the name that was asked.

Paths below /v2 name models too, and are parsed here:

    models/{model}[/versions/{version}][/{action}]
    models/{model}/trace/setting
    repository/index
    repository/models/{model}/{load | unload}

A model's name may be `endpoint:target`, and a target may have slashes, which clients of the
protocol send unencoded. So a path is parsed from its end: a part that could be an action or a
version is one. A target whose name ends like that needs its slashes written as %2F. A served name
may have slashes too.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from penstock.errors import CallerError

#: The limit of TargetModel in AWS's model; the host checks the name below its prefix.
TARGET_CHARS_MAX: Final = 1024
_TARGET: Final = re.compile(r"[!-~][ -~]*")


class ModelName(NamedTuple):
    """A parsed name."""

    endpoint: str
    target: str | None = None
    served: str = ""  #: the served name that was asked; "" = there is none in it

    def __str__(self) -> str:
        if self.served:
            return self.served
        return self.endpoint if self.target is None else f"{self.endpoint}:{self.target}"


class FindsServed(Protocol):
    """The served names of a server."""

    def find(self, name: str) -> tuple[str, str | None] | None:
        """(endpoint, target) of a served name, or of `served name:target`; None for any other."""


class NoServedNames:
    """Of a server that knows no endpoints."""

    def find(self, name: str) -> tuple[str, str | None] | None:
        return None


NONE_SERVED: Final = NoServedNames()


def parse(name: str, served: FindsServed = NONE_SERVED) -> ModelName:
    """Raises CallerError (`target-model-invalid`)."""
    found = served.find(name)
    if found is not None:
        endpoint, target = found
        if target is not None:
            _check_target(name, target)
        return ModelName(endpoint, target, name if target or name != endpoint else "")
    endpoint, colon, rest = name.partition(":")
    if not colon:
        return ModelName(endpoint)
    _check_target(name, rest)
    return ModelName(endpoint, rest)


def _check_target(name: str, target: str) -> None:
    if len(target) > TARGET_CHARS_MAX or not _TARGET.fullmatch(target):
        raise CallerError(
            "target-model-invalid",
            f"{name[:256]!r} names no target model",
            hint="Write ENDPOINT:TARGET_MODEL, the target as it lies below the endpoint's prefix: "
            f"1 to {TARGET_CHARS_MAX} printable ASCII characters, not a space first; or"
            " ENDPOINT:COMPONENT.",
        )


def endpoint_of(name: str, served: FindsServed = NONE_SERVED) -> str:
    """The endpoint that the name belongs to. Never raises."""
    found = served.find(name)
    return found[0] if found is not None else name.partition(":")[0]


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


def model_target(parts: list[str], path: bytes, served: FindsServed = NONE_SERVED) -> OipTarget:
    """The target of the parts after `models`. Raises CallerError (404, `target-model-invalid`)."""
    name, version, action = split_model(parts, served)
    if not name or action not in ("", *INFERS, *_ABOUT, TRACE_SETTING):
        raise not_found(path)
    return OipTarget(parse(name, served), version, action)


def repository_target(
    parts: list[str], path: bytes, served: FindsServed = NONE_SERVED
) -> OipTarget:
    """The target of the parts after `repository/models`. Raises as `model_target` does."""
    *names, action = parts or [""]
    name = "/".join(names)
    several = len(names) > 1 and (":" in names[0] or served.find(name) is not None)
    if not (several or len(names) == 1) or not names[0] or action not in ("load", "unload"):
        raise not_found(path)
    return OipTarget(parse(name, served), "", action)


def split_model(parts: list[str], served: FindsServed = NONE_SERVED) -> tuple[str, str, str]:
    """(name, version, action) of the parts after `models`, unchecked.

    An endpoint's own name is one part, so anything after it that is no word of the protocol stays
    in `action`.
    """
    whole = _from_end(parts)
    if ":" in parts[0] or ("/" in whole[0] and served.find(whole[0]) is not None):
        return whole
    name, rest = parts[0], parts[1:]
    version = ""
    if rest[:1] == ["versions"] and len(rest) > 1:
        version, rest = rest[1], rest[2:]
    return name, version, "/".join(rest)


def _from_end(parts: list[str]) -> tuple[str, str, str]:
    """The same for a name that may have several parts."""
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
