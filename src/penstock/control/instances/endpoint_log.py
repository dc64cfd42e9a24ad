"""The log that an endpoint has beside those of its instances: what they could not say themselves.

An endpoint that had no room, or whose model no instance could load, may have no instance's log at
all; `penstock logs` is where its FailureReason sends people.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_NAME: Final = "endpoint.log"


def folder_name(endpoint: str) -> str:
    """Below the folder of logs. What is hosted and no endpoint has a slash in its name."""
    return endpoint.replace("/", ".")


def tell(log_dir: Path, endpoint: str, words: str, *, wall: float) -> None:
    """Adds a line. A disk that is full keeps the line from the log, and nothing else.

    Args:
        wall: s since 1970.
    """
    at = datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%S")
    line = f"{at} {' '.join(words.split())}\n".encode("utf-8", "backslashreplace")
    folder = log_dir / folder_name(endpoint)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(folder / _NAME, flags, 0o600)
        with open(descriptor, "ab", buffering=0) as log:
            log.write(line)
    except OSError as error:
        _log.warning("endpoint %s: its log can't be written: %s", endpoint, error)
