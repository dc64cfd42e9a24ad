"""Reads regions.yaml: the regions, how each is reached, and how traffic is shared among them.

    home: eu                        # the region that this orchestrator stands in; it comes first
    mode: automatic                 # or manual: ratios stay as they are set
    regions:
      - name: eu
        url: https://eu.example:8443
        key_file: eu.key            # its bearer key (scope operate); or key_variable: EU_KEY
        certificate: eu-ca.pem      # its authority's; else the system's authorities
        ratio: 2                    # its weight against the other regions
        ratio_min: 0.1              # lowest and highest share in automatic mode
        ratio_max: 0.9
        cost_per_hour: 0.04         # price of one of its slots
        slots_max: 200              # most requests there at once; 0 = as many as it has room for
    endpoints:
      chat-eu:
        pinned: [eu, us]            # its data stays in these regions
        ratios: {eu: 0.7, us: 0.3}  # sum to 1; a region that is not named gets none
        mode: manual

Paths are relative to the file. A key is never written into it, nor into a log.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from penstock.artifacts.description.yaml_tree import read_tree
from penstock.clock import Clock
from penstock.core.traffic.spec import AUTOMATIC, MODES, RegionSpec, TrafficSpec
from penstock.errors import CallerError
from penstock.file_schema import Keys, Reader, one_of, read_by
from penstock.wire.http_client import HttpClientSpec
from penstock.wire.http_pool import HttpPool

REGIONS_MAX: Final = 64
#: Limit for connecting, in s: a round trip around the earth takes 0.3, a TLS handshake two of them.
CONNECT_S_MAX: Final = 1.5
#: Idle connections are closed after this, in s: servers here close theirs after 75.
IDLE_S_MAX: Final = 45.0
IDLE_MAX: Final = 256

#: A region's state, and the reason why an attempt there failed.
REGION_UNREACHABLE: Final = "region-unreachable"
_NAME_CHARS_MAX: Final = 63
_Share = Annotated[float, Meta(ge=0.0, le=1.0)]
_Seconds = Annotated[float, Meta(ge=0.0, le=3600.0)]
_Many = Annotated[float, Meta(ge=0.0, le=1e6)]
_Count = Annotated[int, Meta(ge=0, le=1_000_000)]


def _name(text: str, _where: str) -> str:
    if len(text) > _NAME_CHARS_MAX or not text.replace("-", "").replace("_", "").isalnum():
        raise ValueError("letters, digits, hyphens and underscores, 63 at most")
    return text


class RegionKeys(Keys):
    """One region: how it is reached, and its part of the traffic."""

    name: Annotated[str, read_by(_name)]
    url: str
    key_file: str = ""  #: file with its bearer key (scope operate)
    key_variable: str = ""  #: environment variable with its bearer key, in place of a file
    #: file with the authority that signed its certificate; left out: the system's authorities
    certificate: str = ""
    ratio: _Many = 1.0  #: its weight against the other regions
    ratio_min: _Share = 0.0  #: lowest share in automatic mode
    ratio_max: _Share = 1.0  #: highest share in automatic mode
    cost_per_hour: _Many = 0.0  #: price of one of its slots
    slots_max: _Count = 0  #: most requests there at once; 0 = as many as it has room for


class EndpointTrafficKeys(Keys):
    """Settings of one endpoint, in place of the file's."""

    pinned: tuple[str, ...] = ()  #: regions in which its data stays; left out: any
    #: share of each region; they sum to 1, and a region that is not named gets none
    ratios: dict[str, _Many] = msgspec.field(default_factory=dict)
    mode: Annotated[str, one_of(MODES)] = ""  #: left out: the file's mode


class RegionsKeys(Keys, kw_only=True):
    """A file of regions."""

    home: str = ""  #: the region that this orchestrator stands in; it comes first
    mode: Annotated[str, one_of(MODES)] = AUTOMATIC  #: manual: ratios stay as they are set
    hold_max: _Count = 1024  #: most requests that wait for a region at once
    hold_s_max: _Seconds | None = None  #: longest time that one of them waits
    step_max: _Share | None = None  #: largest change of a share in one move
    settle_s: _Seconds | None = None  #: time between two moves
    regions: Annotated[tuple[RegionKeys, ...], Meta(min_length=1, max_length=REGIONS_MAX)]
    endpoints: dict[str, EndpointTrafficKeys] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a region."""

    host: str
    port: int
    tls: bool
    #: certificate of the authority that signed its own; None: the system's authorities
    certificate: Path | None = None

    @property
    def authority(self) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}".encode()


class Credential:
    """A region's bearer key. Read again if the region refuses it: it may be replaced."""

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
        """The header line; empty if the region needs no key."""
        return self._line


@dataclass(frozen=True, slots=True)
class RegionAccess:
    """How a region is reached."""

    name: str
    url: str
    address: Address
    credential: Credential = field(repr=False)

    def get(self, path: bytes) -> bytes:
        """A GET request of the orchestrator itself."""
        return b"GET %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (
            path,
            self.address.authority,
            self.credential.line,
        )


@dataclass(frozen=True, slots=True)
class Regions:
    """The content of the file."""

    access: tuple[RegionAccess, ...]
    spec: TrafficSpec  #: for endpoints without a spec of their own
    endpoints: dict[str, TrafficSpec]

    def spec_of(self, endpoint: str) -> TrafficSpec:
        """The spec of an endpoint, whether or not the file names it."""
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
    return _regions(path, tree, os.environ if environ is None else environ)


def _invalid(message: str, hint: str) -> CallerError:
    return CallerError("regions-invalid", message, hint=hint)


def _regions(path: Path, tree: dict[str, object], environ: Mapping[str, str]) -> Regions:
    reader = Reader(str(path), lambda _, cause, hint: _invalid(f"{path}: {cause}", hint))
    file = reader.read(RegionsKeys, tree)
    given = {name: getattr(file, name) for name in ("step_max", "settle_s", "hold_s_max")}
    spec = TrafficSpec(
        regions=tuple(
            RegionSpec(
                name=one.name,
                ratio=one.ratio,
                ratio_min=one.ratio_min,
                ratio_max=one.ratio_max,
                cost_per_hour=one.cost_per_hour,
                slots_max=one.slots_max,
            )
            for one in file.regions
        ),
        mode=file.mode,
        home=file.home,
        hold_max=file.hold_max,
        **{name: value for name, value in given.items() if value is not None},
    )
    endpoints: dict[str, TrafficSpec] = {}
    for name, own in file.endpoints.items():
        mode = own.mode or file.mode
        one = replace(spec, endpoint=name, pinned=frozenset(own.pinned), mode=mode)
        endpoints[name] = one.shared(own.ratios) if own.ratios else one
    access = tuple(_access(path, one, environ) for one in file.regions)
    return Regions(access, spec, endpoints)


def _access(path: Path, region: RegionKeys, environ: Mapping[str, str]) -> RegionAccess:
    certificate = path.parent / region.certificate if region.certificate else None
    address = address_of(region.url, certificate)
    return RegionAccess(region.name, region.url, address, _credential(path, region, environ))


def _credential(path: Path, region: RegionKeys, environ: Mapping[str, str]) -> Credential:
    file, variable = region.key_file, region.key_variable
    if file and variable:
        raise _invalid(
            f"{path}: region {region.name} has a key_file and a key_variable",
            "Say once where its key is.",
        )

    def missing(what: str) -> CallerError:
        return CallerError(
            "region-key-missing",
            f"the key of region {region.name} is missing: {what}",
            hint="Make one there: penstock keys create --bearer --scope operate.",
        )

    def read() -> str:
        if variable:
            key = environ.get(variable, "")
            if not key:
                raise missing(f"the variable {variable} is not set")
            return key
        if not file:
            return ""
        try:
            return (path.parent / file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise missing(f"{file} can't be read") from error

    return Credential(read)


def address_of(url: str, certificate: Path | None = None) -> Address:
    """Raises CallerError (`regions-invalid`) if the URL is no server's address."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
        raise CallerError(
            "regions-invalid",
            f"{url!r} is not the address of a region",
            hint="Write it like https://eu.example:8080, without a path.",
        )
    tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if tls else 80), tls, certificate)


def tls_to(address: Address) -> ssl.SSLContext | None:
    """The TLS context that checks the region's certificate. Raises CallerError (`tls-unusable`)."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.certificate)
    except (OSError, ssl.SSLError) as cause:
        raise CallerError(
            "tls-unusable",
            f"{address.certificate} can't be used: {cause}",
            hint="Give the PEM certificate of the region, or of the authority that signed it.",
        ) from cause
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def pool_to(address: Address, clock: Clock, *, body_bytes_max: int = sys.maxsize) -> HttpPool:
    """The pool of connections to a region. Raises CallerError (`tls-unusable`)."""
    spec = HttpClientSpec(
        host=address.host,
        port=address.port,
        tls=tls_to(address),
        connect_s_max=CONNECT_S_MAX,
        body_bytes_max=body_bytes_max,
        idle_max=IDLE_MAX,
        idle_s_max=IDLE_S_MAX,
    )
    return HttpPool(spec, clock)
