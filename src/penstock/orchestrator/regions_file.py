"""regions.yaml: which regions there are, how they are reached, how traffic is shared among them.

    home: eu                        # the region that this orchestrator stands in; it comes first
    mode: automatic                 # or manual: ratios stay as they are set
    regions:
      - name: eu
        url: https://eu.example:8443
        key_file: eu.key            # its bearer key (scope operate); or key_variable: EU_KEY
        certificate: eu-ca.pem      # who vouches for its certificate; else the system's authorities
        ratio: 2                    # against the others'
        ratio_min: 0.1              # bounds of what moves by itself
        ratio_max: 0.9
        cost_per_hour: 0.04         # of one of its slots
        slots_max: 200              # requests at once that are sent there; 0 = as it has room for
    endpoints:
      chat-eu:
        pinned: [eu, us]            # its data stays there
        ratios: {eu: 0.7, us: 0.3}  # sum to 1; a region that is not named gets none
        mode: manual

Paths are relative to the file. A key is never written into it, nor into a log.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from penstock.artifacts.description.yaml_keys import Keys
from penstock.artifacts.description.yaml_tree import read_tree
from penstock.core.traffic.spec import AUTOMATIC, MODES, RegionSpec, TrafficSpec
from penstock.errors import CallerError
from penstock.orchestrator.pool import Address, address_of

REGIONS_MAX: Final = 64
_NAME_CHARS_MAX: Final = 63


class Credential:
    """The bearer key of a region. Read again when the region refuses it: keys are replaced."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._line = b""
        self.refresh()

    def refresh(self) -> None:
        """Raises CallerError (`region-key-missing`)."""
        key = self._read().strip()
        if not key.isascii() or not key.isprintable():
            raise CallerError(
                "region-key-missing",
                "the key of a region holds what no key has",
                hint="Put the key alone into its file or variable, as 'penstock keys' shows it.",
            )
        self._line = b"authorization: Bearer %b\r\n" % key.encode() if key else b""

    @property
    def line(self) -> bytes:
        """The header line; empty for a region that asks for no key."""
        return self._line


@dataclass(frozen=True, slots=True)
class RegionAccess:
    """How a region is reached."""

    name: str
    url: str
    address: Address
    credential: Credential = field(repr=False)


@dataclass(frozen=True, slots=True)
class Regions:
    """What the file says."""

    access: tuple[RegionAccess, ...]
    spec: TrafficSpec  #: of endpoints that have none of their own
    endpoints: dict[str, TrafficSpec]

    def spec_of(self, endpoint: str) -> TrafficSpec:
        """Of an endpoint, whether or not the file names it."""
        found = self.endpoints.get(endpoint)
        return found if found is not None else replace(self.spec, endpoint=endpoint)


def read_regions(path: Path, environ: Mapping[str, str] | None = None) -> Regions:
    """Raises CallerError: `regions-invalid`, `region-key-missing`, `invalid-traffic`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CallerError(
            "regions-invalid",
            f"{path} can't be read: {error.strerror}",
            hint="Give the file of regions with --regions; docs/howto/regions.md has one.",
        ) from error
    try:
        tree = read_tree(content, str(path))
    except CallerError as error:
        raise _invalid(error.message, "Check the YAML of the file.") from error
    return _RegionsReader(path, os.environ if environ is None else environ).regions(tree)


def _invalid(message: str, hint: str) -> CallerError:
    return CallerError("regions-invalid", message, hint=hint)


class _RegionsReader:
    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = environ

    def regions(self, tree: dict[str, Any]) -> Regions:
        keys = Keys(
            tree,
            where=str(self._path),
            fail=lambda _, cause, hint: _invalid(f"{self._path}: {cause}", hint),
        )
        listed = keys.sections("regions")
        if not 1 <= len(listed) <= REGIONS_MAX:
            raise keys.wrong("regions", len(listed), f"a list of 1 to {REGIONS_MAX} regions")
        pairs = [self._region(one) for one in listed]
        defaults: dict[str, Any] = {
            "mode": keys.choice("mode", MODES, default=AUTOMATIC),
            "home": keys.text("home"),
            "hold_max": keys.integer("hold_max", 1024, low=0, high=1_000_000),
        }
        for name, high in (("step_max", 1.0), ("settle_s", 3600.0), ("hold_s_max", 3600.0)):
            value = keys.number(name, low=0.0, high=high)
            if value is not None:
                defaults[name] = value
        spec = TrafficSpec(regions=tuple(one for _, one in pairs), **defaults)
        own = self._endpoints(keys, spec)
        keys.done()
        return Regions(tuple(access for access, _ in pairs), spec, own)

    def _region(self, keys: Keys) -> tuple[RegionAccess, RegionSpec]:
        name = keys.text("name", required=True)
        if len(name) > _NAME_CHARS_MAX or not name.replace("-", "").replace("_", "").isalnum():
            raise keys.wrong("name", name, "letters, digits, hyphens and underscores, 63 at most")
        url = keys.text("url", required=True)
        certificate = keys.text("certificate")
        address = address_of(url, self._path.parent / certificate if certificate else None)
        credential = self._credential(name, keys.text("key_file"), keys.text("key_variable"))
        spec = RegionSpec(
            name=name,
            ratio=_number(keys, "ratio", 1.0, high=1e6),
            ratio_min=_number(keys, "ratio_min", 0.0, high=1.0),
            ratio_max=_number(keys, "ratio_max", 1.0, high=1.0),
            cost_per_hour=_number(keys, "cost_per_hour", 0.0, high=1e6),
            slots_max=keys.integer("slots_max", 0, low=0, high=1_000_000),
        )
        keys.done()
        return RegionAccess(name, url, address, credential), spec

    def _credential(self, name: str, file: str, variable: str) -> Credential:
        if file and variable:
            raise _invalid(
                f"{self._path}: region {name} has a key_file and a key_variable",
                "Say once where its key is.",
            )

        def missing(what: str) -> CallerError:
            return CallerError(
                "region-key-missing",
                f"the key of region {name} is missing: {what}",
                hint="Make one there: penstock keys create --bearer --scope operate.",
            )

        def read() -> str:
            if variable:
                key = self._environ.get(variable, "")
                if not key:
                    raise missing(f"the variable {variable} is not set")
                return key
            if not file:
                return ""
            try:
                return (self._path.parent / file).read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise missing(f"{file} can't be read") from error

        return Credential(read)

    def _endpoints(self, keys: Keys, spec: TrafficSpec) -> dict[str, TrafficSpec]:
        found: dict[str, TrafficSpec] = {}
        listed = keys.section("endpoints")
        if listed is None:
            return found
        for name in listed.names():
            own = listed.section(name)
            if own is None:
                continue
            ratios = _ratios(own, "ratios")
            one = replace(
                spec,
                endpoint=name,
                pinned=frozenset(own.texts("pinned")),
                mode=own.choice("mode", MODES, default=spec.mode),
            )
            own.done()
            found[name] = one.shared(ratios) if ratios else one
        listed.done()
        return found


def _number(keys: Keys, name: str, default: float, *, high: float) -> float:
    value = keys.number(name, low=0.0, high=high)
    return default if value is None else value


def _ratios(keys: Keys, name: str) -> dict[str, float]:
    section = keys.section(name)
    if section is None:
        return {}
    shares = {one: _number(section, one, math.nan, high=1e6) for one in section.names()}
    section.done()
    return shares
