"""Images of containers: which may be pulled, what names one for good, which are removed again.

Nothing is pulled that the operator has not allowed by a pattern. A name is pulled only if it begins
with a registry, so that no engine's search list decides whose image it is. An image that was pulled
here is removed when no model names it; one that was here before, or that somebody has put in its
place since, is somebody else's.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

_DIGEST: Final = "sha256:"
#: Host and port; no name that an engine would take for an option.
_REGISTRY: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(:[0-9]+)?")
_PORT: Final = re.compile(r":[0-9]+\Z")
#: What may follow the host in names: those of repositories.
_REPOSITORY: Final = re.compile(r"[a-z0-9]+([._/-]+[a-z0-9]+)*")
#: What the kernel calls a machine -> what images call those whose programs it runs, its own first.
_ARCHITECTURES: Final = {"x86_64": ("amd64", "386"), "aarch64": ("arm64", "arm")}


@dataclass(frozen=True, slots=True)
class PullRuling:
    """`reason`: allowed | nothing-allowed | no-registry | not-listed | not-allowed."""

    allowed: bool
    reason: str


def registry_of(image: str) -> str:
    """Host and port of the registry that the name begins with; "" = it begins with none. What
    engines call `localhost/NAME` was made on the machine itself."""
    first, slash, _ = image.partition("/")
    whole = slash and _REGISTRY.fullmatch(first) and ("." in first or ":" in first)
    return first if whole else ""


def may_pull(image: str, patterns: Sequence[str]) -> PullRuling:
    """`patterns`: of names that may be pulled. What is before the first slash of one is a registry
    as it is; the rest may have `*`, `?` and `[`."""
    if not patterns:
        return PullRuling(False, "nothing-allowed")
    registry = registry_of(image)
    if not registry:
        return PullRuling(False, "no-registry")
    rest = image.removeprefix(f"{registry}/")
    listed = False
    for pattern in patterns:
        host, _, names = pattern.partition("/")
        listed = listed or host == registry
        if host == registry and fnmatch.fnmatchcase(rest, names):
            return PullRuling(True, "allowed")
    return PullRuling(False, "not-allowed" if listed else "not-listed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySpec:
    """How a registry is asked. The secret itself is read when an image is pulled."""

    host: str
    user: str = ""  #: "" = the engine's own credentials
    secret_file: str = ""
    mirror: str = ""  #: host, and maybe a beginning of names, that is asked in its place


@dataclass(frozen=True, slots=True)
class PullRoute:
    """Where an image is fetched from."""

    host: str  #: that is asked
    location: str  #: of the registry's names there; "" = the registry itself is asked
    login: RegistrySpec | None  #: None = the engine's own credentials


def route_of(image: str, registries: Sequence[RegistrySpec]) -> PullRoute:
    """`image` begins with a registry."""
    by_host = {one.host: one for one in registries}
    own = registry_of(image)
    location = by_host[own].mirror if own in by_host else ""
    host = location.partition("/")[0] or own
    asked = by_host.get(host)
    return PullRoute(host, location, asked if asked and asked.user else None)


def is_place(text: str) -> bool:
    """Whether it names a registry, or a beginning of names in one."""
    host, slash, names = text.partition("/")
    whole = bool(host) and registry_of(f"{host}/name") == host
    return whole and (not slash or _REPOSITORY.fullmatch(names) is not None)


def wrong_platform(platform: str, machine: str) -> str:
    """Why an image can't run on this machine; "" = it can, or who knows. `platform`: of the image,
    as "linux/arm64"; `machine`: as the kernel calls this one."""
    here = _ARCHITECTURES.get(machine)
    system, _, architecture = platform.partition("/")
    if here is None or not architecture or (system == "linux" and architecture in here):
        return ""
    return f"it is made for {platform}, and this machine is linux/{here[0]}"


def is_loopback(registry: str) -> bool:
    """Whether it is this machine's own, which engines ask without TLS, as Docker does."""
    host = _PORT.sub("", registry)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def repository_of(image: str) -> str:
    """The name without tag and digest."""
    name = image.partition("@")[0]
    before, colon, tag = name.rpartition(":")
    return before if colon and "/" not in tag else name


def whole_id(image_id: str) -> str:
    """An image's id as Docker writes it; Podman leaves the algorithm out."""
    return image_id if ":" in image_id or not image_id else _DIGEST + image_id


def resolved(image: str, image_id: str, digests: Sequence[str]) -> str:
    """What names the image for good. `digests`: its names with digests. An image that came from no
    registry may have none; then its id does."""
    own = repository_of(image)
    if f"@{_DIGEST}" in image:  # engines may store it in another form, with a digest of that
        return f"{own}@{image.partition('@')[2]}"
    named = sorted(digests, key=lambda one: repository_of(one) != own)
    return named[0] if named else whole_id(image_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledImage:
    """An image that was pulled onto this machine."""

    image: str  #: the name by which it was pulled
    id: str  #: "" = the pull did not end


def unused(pulled: Collection[PulledImage], named: Collection[str]) -> list[PulledImage]:
    """Those that no model names, by their names. `named`: by the models of this server."""
    return sorted((one for one in pulled if one.image not in named), key=lambda one: one.image)
