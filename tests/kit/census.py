"""A server that says what it holds of names that are gone."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tests.kit.polling import wait_until
from tests.kit.servers import Server

MARK = "passing"
_SCRIPT = Path(__file__).resolve().parent / "census_server.py"
#: Bounded by their nature: datapoints of what is gone, packed; for cost, instances that hosted
#: target models; the models most called; the log that an instance is to have which stands ready;
#: the last activities of an endpoint that stays.
_KNOWN = (
    "penstock.control.store.activities.Activity",
    "penstock.core.models.most_called.MostCalled",
    "penstock.metrics.series.store.",
    "penstock.metrics.series.series.",
    "penstock.metrics.series.store.",
    "penstock.metrics.utilization.cost.InstanceHeld",
    "penstock.metrics.models.model_registry.",
    "penstock.fleet.child.Child",
)


class CensusServer(Server):
    """A server that says what it holds of names with MARK in them."""

    def __init__(self, state_dir: Path, *flags: str) -> None:
        self._path = state_dir.parent / "census.json"
        environment = f"CENSUS_MARK={MARK}", f"CENSUS={self._path}"
        super().__init__(
            state_dir, *flags, prefix=("env", *environment, sys.executable, str(_SCRIPT))
        )

    def census(self) -> list[str]:
        """Classes whose objects hold such a name."""
        self._path.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        wait_until(self._path.exists, "a census", 60)
        found = json.loads(self._path.read_text())
        return [one for one in found if not one.startswith(_KNOWN)]

    def forgets(self) -> None:
        """Waits until it holds none; counts of what is gone are kept for 30 s."""
        left: list[str] = []

        def nothing_left() -> bool:
            left[:] = self.census()
            return not left

        try:
            wait_until(nothing_left, "a server that has forgotten", 90)
        except AssertionError:
            raise AssertionError("\n".join(sorted(set(left)))) from None
