"""Shares of traffic: set by hand, or moved automatically; the next request uses the new ones.

Shares set by hand override the file of regions until they are set anew. They are stored in the
state directory, and a change is on disk before it is confirmed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.clock import Clock
from penstock.core.traffic.ratios import RatioMemory, decide
from penstock.core.traffic.spec import AUTOMATIC, MANUAL, MODES, TrafficSpec
from penstock.durable_files import replace_file
from penstock.errors import CallerError, NotNowError
from penstock.orchestrator.dispatcher import RegionDispatcher
from penstock.orchestrator.region import Region
from penstock.orchestrator.table import EndpointTraffic, TrafficTable

log = logging.getLogger(__name__)

FILE: Final = "traffic.json"
CHANGES_MAX: Final = 256
BY_HAND: Final = "by-hand"
#: How often it is checked whether shares move, in s; `core/traffic` decides how often they do.
MOVE_EVERY_S: Final = 0.5


class TrafficShares:
    """The shares of one orchestrator."""

    def __init__(
        self,
        table: TrafficTable,
        regions: Mapping[str, Region],
        dispatcher: RegionDispatcher,
        clock: Clock,
        state_dir: Path,
    ) -> None:
        self._table = table
        self._regions = regions
        self._dispatcher = dispatcher
        self._clock = clock
        self._path = state_dir / FILE
        self._by_hand: dict[str, dict[str, Any]] = {}  #: endpoint -> mode and ratios set by hand
        self._memory: dict[str, RatioMemory] = {}  #: by endpoint
        self.changes: deque[dict[str, Any]] = deque(maxlen=CHANGES_MAX)

    def load(self) -> None:
        """Loads shares set by hand before the last stop, without regions that no longer exist."""
        try:
            kept: Any = orjson.loads(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("%s can't be read, ratios are those of the file: %s", self._path, error)
            return
        for endpoint, one in kept.items() if isinstance(kept, dict) else ():
            ratios = {name: one["ratios"].get(name, 0.0) for name in self._regions}
            try:
                self._replace(endpoint, ratios, one["mode"])
            except (CallerError, KeyError, TypeError, AttributeError) as error:
                log.warning("what was set by hand for %r no longer fits: %s", endpoint, error)
            else:
                self._by_hand[endpoint] = {"mode": one["mode"], "ratios": ratios}

    def regions(self) -> list[dict[str, Any]]:
        """The state of each region and how it is reached, JSON-ready."""
        now = self._clock.monotonic()
        known = {
            one["region"]: one for one in self._table.unnamed.router.snapshot(now=now)["regions"]
        }
        return [
            region.snapshot()
            | {
                "health": known[name]["reason"],
                "endpoints": sorted(
                    one.name for one in self._table.endpoints.values() if name in one.serving
                ),
            }
            for name, region in self._regions.items()
        ]

    def told(self, endpoint: str | None = None) -> list[dict[str, Any]]:
        """The traffic of every endpoint, or of one, JSON-ready ("" = all unknown endpoints).

        Raises CallerError (`endpoint-not-found`).
        """
        found = [one for one in self._table.all() if endpoint in (None, one.name)]
        found.sort(key=lambda one: (not one.name, one.name))  # the entry without a name comes last
        if not found:
            raise CallerError(
                "endpoint-not-found",
                f"No region has an endpoint {endpoint!r}.",
                hint="'penstock traffic show' names those that there are.",
                status=404,
            )
        return [self._told(one) for one in found]

    def snapshots(self) -> list[dict[str, Any]]:
        now = self._clock.monotonic()
        return [one.router.snapshot(now=now) for one in self._table.all()]

    def _told(self, one: EndpointTraffic) -> dict[str, Any]:
        story = one.router.snapshot(now=self._clock.monotonic())
        for region in story["regions"]:
            seen = one.seen.get(region["region"])
            region["has_it"] = region["region"] in one.serving or not one.name
            region["room_told"] = seen.room if seen is not None else None
            region["p99_s"] = seen.p99_s if seen is not None else None
        spec = one.router.spec
        story["pinned"] = sorted(spec.pinned)
        story["home"] = spec.home
        story["moving"] = one.moving
        story["changes"] = [
            change for change in self.changes if change["endpoint"] in (one.name, "")
        ][-20:]
        return story

    def set_by_hand(
        self, *, endpoint: str, ratios: Mapping[str, float], mode: str | None
    ) -> dict[str, Any]:
        """Sets shares, or lets them move automatically again; in effect at once.

        Args:
            endpoint: "" = all endpoints without shares of their own.
            ratios: by region; a region that is not named gets none. Empty: unchanged.
            mode: None: `manual` if there are ratios.

        Raises:
            CallerError: `invalid-traffic`.
            NotNowError: `state-not-writable`; nothing was changed.
        """
        if mode is None:
            mode = MANUAL if ratios else AUTOMATIC
        if mode not in MODES:
            raise CallerError(
                "invalid-traffic", f"mode is {mode!r}, not {' or '.join(MODES)}.", hint="Name one."
            )
        before = self._table.spec_of(endpoint)
        after = before.shared(ratios, mode=mode) if ratios else replace(before, mode=mode)
        by_hand = self._by_hand | {endpoint: {"mode": mode, "ratios": after.ratios()}}
        try:
            replace_file(self._path, (orjson.dumps(by_hand),))
        except OSError as error:
            raise NotNowError(
                "state-not-writable",
                f"{self._path} can't be written: {error.strerror}",
                hint="Free disk space, or correct the permissions of the state directory.",
            ) from error
        self._by_hand = by_hand
        self._table.replace(endpoint, after)
        self._note(before, after, dict.fromkeys(after.ratios(), BY_HAND))
        self._dispatcher.look_all()
        return self._told(self._table.of(endpoint))

    def move(self) -> None:
        """Moves automatic shares as `core/traffic/ratios.py` decides; call it every `MOVE_EVERY_S`.

        They take effect at once, and a restart forgets them.
        """
        now = self._clock.monotonic()
        memory, self._memory = self._memory, {}
        for one in self._table.endpoints.values():
            router, spec = one.router, one.router.spec
            closed = [
                region.name
                for region in spec.regions
                if region.name not in one.serving or not router.serves(region.name, now=now)
            ]
            decision = decide(
                spec, one.seen.values(), closed=closed, memory=memory.get(one.name), now=now
            )
            self._memory[one.name] = decision.memory
            one.moving = decision.reason
            if decision.changes:
                after = spec.with_ratios(decision.ratios)
                router.replace(after)
                reasons = {change.region: change.reason for change in decision.changes}
                self._note(spec, after, reasons)
                self._dispatcher.look(one)

    def _note(self, before: TrafficSpec, after: TrafficSpec, reasons: Mapping[str, str]) -> None:
        old, new = before.ratios(), after.ratios()
        for region, ratio in new.items():
            if ratio != old[region] or before.mode != after.mode:
                change = {
                    "at": self._clock.wall(),
                    "endpoint": after.endpoint,
                    "region": region,
                    "before": round(old[region], 4),
                    "after": round(ratio, 4),
                    "mode": after.mode,
                    "reason": reasons.get(region, BY_HAND),
                }
                self.changes.append(change)
                log.info("traffic of %s: %s", after.endpoint or "all endpoints", change)

    def _replace(self, endpoint: str, ratios: Mapping[str, float], mode: str) -> None:
        spec = self._table.spec_of(endpoint)
        self._table.replace(endpoint, spec.with_ratios(ratios, mode=mode))
