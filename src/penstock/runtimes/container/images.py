"""Pulls images that the operator allows, and removes them again when no model names them.

A file for each pulled image says so; it is written before the pull, so that a pull that was cut off
is known, too. The engine uses its own credentials (`podman login`, `docker login` by the server's
user) where the operator has named none (`pull_access.py`). All functions block.
"""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec
import orjson

from penstock.core.machine.images import PulledImage, PullRoute, unused
from penstock.durable_files import replace_file
from penstock.runtimes.container.engine import Image, find_in, remove_image
from penstock.runtimes.container.pull_access import not_pulled, pull_access
from penstock.runtimes.environment import for_engines

#: A registry that has not said what the image consists of by then is not reached.
_SILENCE_S_MAX: Final = 45.0
_LOOK_S: Final = 0.2
#: What engines say before they have reached a registry: that they begin, and that they try again.
_BEFORE: Final = ("Trying to pull", "time=")
_LINE_CHARS_MAX: Final = 300


def pull(
    program: str,
    image: str,
    folder: Path,
    *,
    route: PullRoute,
    check: Callable[[], None],
    log: Callable[[str], None],
) -> Image:
    """The image, from its registry.

    Args:
        folder: of the files about pulled images.
        route: where it is fetched from.
        check: raises where nobody waits for it any more; then the pull has ended, too.
        log: gets what the engine says.

    Raises:
        CallerError: `image-not-pulled`, with the engine's words.
    """
    note = _note_of(folder, image)
    _write(note, PulledImage(image=image, id=""))
    log(f"pulling the image {image}{f' from {route.location}' if route.location else ''}")
    with (
        pull_access(program, image, route, folder) as access,
        subprocess.Popen(
            [program, "pull", *access.options, image],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=for_engines() | access.environment,
        ) as process,
    ):
        try:
            last = _followed(process, image, route, check, log)
        finally:
            process.kill()
    found = None if process.returncode else find_in(program, image)
    if found is None:
        cause = last or f"it ended with status {process.returncode}"
        raise not_pulled(image, cause, _what_to_do(route))
    _write(note, PulledImage(image=image, id=found.id))
    log(f"pulled {image}: {found.resolved}")
    return found


def _followed(
    process: subprocess.Popen[bytes],
    image: str,
    route: PullRoute,
    check: Callable[[], None],
    log: Callable[[str], None],
) -> str:
    """Returns its last line, once it has ended. Raises CallerError for one that gets no answer."""
    began, last, reached = time.monotonic(), "", False
    for line in _lines(process):
        check()
        if line:
            last = line
            reached = reached or not line.startswith(_BEFORE)
            log(line)
        elif not reached and time.monotonic() >= began + _SILENCE_S_MAX:
            cause = f"{route.host} did not answer within {_SILENCE_S_MAX:g} s"
            raise not_pulled(image, cause, _what_to_do(route))
    process.wait()
    return last


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Its lines as they come, and "" while there is none. A progress bar's are parted by \\r."""
    assert process.stdout is not None
    descriptor, rest = process.stdout.fileno(), b""
    while True:
        readable, _, _ = select.select([descriptor], [], [], _LOOK_S)
        if not readable:
            yield ""
            continue
        data = os.read(descriptor, 65_536)
        if not data:
            break
        *whole, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
        yield from (_text(each) for each in whole if each.strip())
    if rest.strip():
        yield _text(rest)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()[:_LINE_CHARS_MAX]


def _what_to_do(route: PullRoute) -> str:
    if route.login is not None:
        return (
            f"If it is a matter of rights, check user and secret_file of {route.host} in"
            " containers.registries."
        )
    return (
        "Try it as the server's user (podman pull, docker pull). If the registry asks for a login,"
        f" log in to it there, or give {route.host} a user and a secret_file in"
        " containers.registries."
    )


# What was pulled


def pulled(folder: Path) -> list[PulledImage]:
    """What the files say. One that can't be read is left alone."""
    found = []
    for path in folder.glob("*.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=PulledImage))
        except (OSError, msgspec.MsgspecError):
            continue
    return found


def remove_unused(program: str, folder: Path, named: Collection[str]) -> list[str]:
    """Removes pulled images that no model names, and returns their names. One that a container uses
    stays until later; one that is another image by now stays for good."""
    gone = []
    for one in unused(pulled(folder), named):
        found = find_in(program, one.image)
        if found is not None and one.id in ("", found.id):
            if not remove_image(program, one.image):
                continue
            gone.append(one.image)
        _note_of(folder, one.image).unlink(missing_ok=True)
    return gone


def _note_of(folder: Path, image: str) -> Path:
    return folder / f"{hashlib.sha256(image.encode()).hexdigest()}.json"


def _write(note: Path, image: PulledImage) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    replace_file(note, [orjson.dumps(image)])
