"""Logging in a model's process: lines of INFO and above, as in the toolkits' containers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

LOG_LEVEL = "SAGEMAKER_CONTAINER_LOG_LEVEL"

if TYPE_CHECKING:
    _Handler = logging.StreamHandler[TextIO]
else:  # Python 3.10, which a model may run in, has no parameters there
    _Handler = logging.StreamHandler


class CurrentOutput(_Handler):
    """Writes to the standard error of the moment: a shared process changes it with each model."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def configure(environment: Mapping[str, str]) -> None:
    """Gives the root logger a handler, where it has none, and the level that is asked for."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(CurrentOutput())
    given = environment.get(LOG_LEVEL, "").strip()
    named = logging.getLevelName(given.upper()) if given else logging.INFO
    root.setLevel(int(given) if given.isdigit() else named if isinstance(named, int) else 20)
