"""The first word of an instance to whoever connects to it over a network: which version it is.

It comes once the instance has seen who connects and lets it in. In TLS 1.3 the end that connects
has finished its handshake before the other has judged its certificate, so only this word says that
both ends want each other, and nothing is sent before it came. Over a Unix socket there is none: its
two ends are of one machine and one installation.
"""

from __future__ import annotations

from typing import Final

import orjson

from penstock import __version__
from penstock.errors import NotNowError
from penstock.wire import frames

EVENT: Final = "hello"


def hello(instance_id: str) -> bytes:
    """The frame."""
    told = {
        "event": EVENT,
        "instance_id": instance_id,
        "version": __version__,
        "wire": frames.LAYOUT,
    }
    return frames.encode(frames.EVENT, 0, orjson.dumps(told))


def check(frame: frames.Frame, instance_id: str) -> None:
    """Raises NotNowError: `instance-version`, or `instance-untrusted` for another first word."""
    try:
        told = orjson.loads(frame.payload) if frame.kind == frames.EVENT else {}
        spoken = told.get("event") == EVENT and told.get("instance_id") == instance_id
    except (orjson.JSONDecodeError, AttributeError):
        spoken = False
    if not spoken:
        raise NotNowError(
            "instance-untrusted",
            f"what answers for instance {instance_id} does not greet as an instance does",
        )
    check_version(str(told.get("version")), str(told.get("wire")), f"instance {instance_id}")


def check_version(version: str, wire: str, who: str) -> None:
    """Raises NotNowError `instance-version` for anything but this very version."""
    if (version, wire) != (__version__, frames.LAYOUT):
        raise NotNowError(
            "instance-version",
            f"{who} runs Penstock {version[:40]} (frames {wire[:40]}), this server {__version__}"
            f" (frames {frames.LAYOUT})",
            hint="Install the server's version of Penstock on every node, then restart them.",
        )
