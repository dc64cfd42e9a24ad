"""How an engine is told to pull an image: from which host, with whose credentials.

Neither is an argument that a list of processes shows. A user's password goes by a file that only
the server's user can read, and that exists as long as the pull. What is left of a pull that was
killed goes with the next one.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.core.machine.images import PullRoute, RegistrySpec, is_loopback, registry_of
from penstock.errors import CallerError

_PREFIX: Final = "login-"
#: A token of a cloud has some thousand characters.
_SECRET_BYTES_MAX: Final = 65_536
#: Docker's own name of its registry, among credentials.
_DOCKER_HUB: Final = {"docker.io": "https://index.docker.io/v1/"}


@dataclass(frozen=True, slots=True)
class PullAccess:
    """What is added to the engine's command."""

    options: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def pull_access(program: str, image: str, route: PullRoute, folder: Path) -> Iterator[PullAccess]:
    """For one pull. `folder`: of the server's own files. Raises CallerError (`image-not-pulled`)
    where it can't be made."""
    podman = Path(program).name == "podman"
    access = PullAccess()
    if podman and is_loopback(route.host):
        access.options.append("--tls-verify=false")
    if not route.location and route.login is None:
        yield access
        return
    if route.location and not podman:
        raise not_pulled(
            image,
            f"{registry_of(image)} has a mirror in containers.registries, which needs Podman",
            "Docker's own mirrors are registry-mirrors in its daemon.json: leave `mirror` out.",
        )
    _sweep(folder)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=folder) as made:
        place = Path(made)
        if route.location:
            conf = place / "registries.conf"
            conf.write_text(_moved(registry_of(image), route))
            access.environment["CONTAINERS_REGISTRIES_CONF"] = str(conf)
        if route.login is not None:
            _log_in(place, image, route.login, access, podman=podman)
        yield access


def _moved(registry: str, route: PullRoute) -> str:
    """Podman's settings: names of the registry are fetched from another place."""
    insecure = "true" if is_loopback(route.host) else "false"
    return (
        f'[[registry]]\nprefix = "{registry}"\nlocation = "{route.location}"\n'
        f"insecure = {insecure}\n"
    )


def _log_in(
    place: Path, image: str, login: RegistrySpec, access: PullAccess, *, podman: bool
) -> None:
    pair = f"{login.user}:{_secret(image, login)}".encode()
    entry = {"auth": base64.b64encode(pair).decode()}
    if podman:
        file = place / "auth.json"
        _write(file, {"auths": {login.host: entry}})
        access.options.extend(["--authfile", str(file)])
        return
    # Docker's settings also say which daemon is meant: all but its credentials stays.
    usual = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    settings = _settings_in(usual / "config.json")
    settings = {key: value for key, value in settings.items() if not key.startswith("cred")}
    _write(
        place / "config.json",
        settings | {"auths": {_DOCKER_HUB.get(login.host, login.host): entry}},
    )
    (place / "contexts").symlink_to(usual / "contexts")
    access.environment["DOCKER_CONFIG"] = str(place)


def _secret(image: str, login: RegistrySpec) -> str:
    where = f"the secret_file of {login.host} in containers.registries, {login.secret_file},"
    try:
        with Path(login.secret_file).open("rb") as file:
            text = file.read(_SECRET_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise not_pulled(
            image, f"{where} can't be read: {cause}", "The server's user reads it at each pull."
        ) from None
    secret = text.rstrip("\r\n")
    if not secret:
        raise not_pulled(image, f"{where} is empty", "It holds the password or token alone.")
    return secret


def _settings_in(file: Path) -> dict[str, Any]:
    try:
        found = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Path, content: dict[str, Any]) -> None:
    """The folder around it is open to its owner alone."""
    file.write_bytes(orjson.dumps(content))


def _sweep(folder: Path) -> None:
    """Removes what pulls of processes that were killed have left."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)


def not_pulled(image: str, cause: str, hint: str) -> CallerError:
    return CallerError(
        "image-not-pulled", f"the image {image!r} could not be pulled: {cause}", hint=hint
    )
