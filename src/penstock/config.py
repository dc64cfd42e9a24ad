"""The settings of a server: one tree of frozen dataclasses.

Defaults stand here with their reasons; TOML, environment and flags are merged over them in one
place (`cli/settings.py`). `core/` never sees this tree: it gets small specs of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from penstock.core.request.holding import ZERO_CAPACITY_MODES
from penstock.file_schema import one_of

CAPACITY_MEASURED: Final = "measured"
CAPACITY_STRICT: Final = "strict"
CAPACITY_MODES: Final = (CAPACITY_MEASURED, CAPACITY_STRICT)
#: Instances are processes of this machine.
FLEET_LOCAL: Final = "local"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_Count = Annotated[int, Meta(ge=0)]
_Number = Annotated[float, Meta(ge=0)]
_Port = Annotated[int, Meta(ge=0, le=65_535)]
_Period = Annotated[int, Meta(ge=1, le=3600)]  #: s
_Periods = Annotated[int, Meta(ge=1, le=1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Where the server listens, and who may come in."""

    host: str = "127.0.0.1"  #: loopback: no credentials needed
    port: _Port = 8080  #: HTTP: AWS, Open Inference Protocol, OpenAI, admin; 0 = any free port
    grpc_port: _Port = 8081  #: Open Inference Protocol over gRPC; 0 = any free port
    # One for every four cores: more would take from models what they give to requests.
    #: processes that share the ports; 0 = by the machine's cores
    gateways: Annotated[int, Meta(ge=0, le=64)] = 0
    tls_cert: Path | None = None  #: PEM chain; both or neither
    tls_key: Path | None = None
    auth: bool = False  #: every request needs SigV4 or a bearer key
    insecure: bool = False  #: allow a non-loopback address without credentials
    hosts: tuple[str, ...] = ()  #: names that requests may call it by besides its own; "*" = any
    origins: tuple[str, ...] = ()  #: scheme://host of other servers' pages that may call; "*" = any


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitConfig:
    """Bounds of one gateway process."""

    #: InvokeEndpoint's limit in AWS
    body_bytes_max: Annotated[int, Meta(ge=1, le=2**30)] = 6_291_456
    # Room for 85 of the largest bodies; a laptop with 8 GiB keeps its models beside it.
    #: bodies of all requests, read or waiting for an answer
    bodies_bytes_max: Annotated[int, Meta(ge=1, le=2**40)] = 512 * 2**20
    head_bytes_max: Annotated[int, Meta(ge=1024, le=2**20)] = 65_536  #: request line and headers
    connections_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    # A connection that is opened ahead and says nothing must not cost what an idle one may.
    head_timeout_s: _Number = 20.0  #: of a head, from its first byte (the first: from the connect)
    body_timeout_s: _Number = 60.0  #: from the head to the last byte of the body
    keep_alive_s: _Number = 75.0  #: idle connections are closed after this
    #: AWS gives a model 60 s to answer; a caller may ask for less
    request_timeout_s: Annotated[float, Meta(ge=0.001, le=3600)] = 60.0
    #: an answer in pieces, as AWS; at least request_timeout_s
    stream_timeout_s: Annotated[float, Meta(ge=0.001, le=86_400)] = 480.0
    drain_s_max: _Number = 30.0  #: on SIGTERM, how long requests in flight may take
    # hold: a client that waits some seconds is better off than one that is refused as long.
    #: what comes when no copy can take it: hold, or refuse as AWS does
    zero_capacity: Annotated[str, one_of(ZERO_CAPACITY_MODES)] = "hold"
    # A few minutes of a busy endpoint's calls, or as many connections as half of the most.
    held_requests_max: _Count = 4096  #: of one endpoint, that wait for a copy
    # A quarter of all bodies: an endpoint that is asleep must not starve those that serve.
    held_bytes_max: _Count = 128 * 2**20  #: their bodies
    # A few videos or images; what waits lies in the database, however many requests it is.
    #: bodies of asynchronous requests in memory, or of one
    async_bytes_max: Annotated[int, Meta(ge=128_000, le=2**30)] = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """The control plane."""

    database: str = ""  #: SQLAlchemy URL; empty = SQLite in the state directory
    #: URL under which servers on the same database reach this one; empty = from where it listens
    advertise: str = ""
    #: encrypts access keys, for all servers of a database; none = keys.key in the state directory
    key_file: Path | None = None
    account_id: str = "123456789012"
    region: str = "us-east-1"  #: for ARNs of requests that carry no credential scope
    s3_endpoint: str = ""  #: S3-compatible endpoint for s3:// artifacts; empty = AWS's own
    s3_local: dict[str, Path] = field(default_factory=dict)  #: bucket -> local directory
    topics: dict[str, str] = field(default_factory=dict)  #: ARN of an SNS topic, or "*" -> URL
    async_inputs: tuple[str, ...] = ()  #: URI prefixes of async inputs besides s3://, with auth
    image_commands: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  #: image pattern -> argv
    #: URI prefixes whose pickle files may be loaded, and whose code is not confined
    trusted_artifacts: tuple[str, ...] = ()
    isolation: bool = True  #: models' processes see their own files only (Linux 5.13 and later)
    # Notebooks name AWS's types out of habit: a laptop would be full after two of them.
    #: measured or strict: reserve AWS's types, too
    capacity: Annotated[str, one_of(CAPACITY_MODES)] = CAPACITY_MEASURED
    instance_limits: dict[str, _Count] = field(
        default_factory=dict
    )  #: instance type -> instances of it that there may be; others as far as there is room
    # Room for a few models of tens of GiB, on the disk of a small server.
    cache_bytes_max: _Count = 64 * 2**30  #: artifacts kept on disk; those in use are never removed
    fleet: str = FLEET_LOCAL  #: where instances come from: local, ray://host:port or ray:auto
    # Three attempts at an endpoint: a cloud may take six minutes to bring a node.
    #: how long an instance waits for a node of a Ray cluster with room
    node_wait_s: Annotated[float, Meta(ge=0, le=3600)] = 120.0
    own_host: str = ""  #: this machine as nodes reach it; empty = its address that faces them
    node_cache_dir: str = ""  #: artifacts on each node of it; empty = below its user's cache
    # One spare takes some 60 MB to 150 MB, by what it has imported; a laptop keeps none.
    #: instance processes that stand ready for whatever is started next
    warm_instances: Annotated[int, Meta(ge=0, le=64)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingConfig:
    """Auto scaling: how the alarms of target-tracking policies are made, and the fast path."""

    # A step of load is seen within 35 s, and believed to be over after 15 minutes. Two periods: a
    # datapoint is the mean of ten samples, so that no single burst makes both.
    high_resolution_period_s: _Period = 10  #: 1, 5, 10, 20, 30 or a multiple of 60
    high_resolution_high_periods: _Periods = 2  #: above the target before capacity is added
    high_resolution_low_periods: _Periods = 90  #: below the target before capacity is taken away
    standard_period_s: _Period = 60  #: as high_resolution_period_s
    standard_high_periods: _Periods = 3
    standard_low_periods: _Periods = 15
    #: of the target, below which a metric counts as low
    low_share: Annotated[float, Meta(ge=0.01, le=1.0)] = 0.9
    cooldown_s_max: _Number = 604_800.0  #: cooldowns of policies that are longer count as this long
    fast: bool = False  #: every target asks for capacity each second, not only those tagged so


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """OpenTelemetry: where traces and metrics go, if anywhere."""

    otlp_endpoint: str = ""  #: base URL of a collector's OTLP over HTTP; empty = nothing is sent
    # As OpenTelemetry's own default: a laptop sees every request. What a busy server records is
    # set there.
    #: of requests whose caller does not decide, 0 to 1
    trace_share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    #: OpenTelemetry's default; 0 = metrics are not sent
    metrics_every_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0
    service_name: str = "penstock"  #: service.name of all that is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Everything `penstock up` is told."""

    state_dir: Path = Path()  #: what the server keeps; no request names a place there
    listen: ListenConfig = field(default_factory=ListenConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    control: ControlConfig = field(default_factory=ControlConfig)
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    log_level: Annotated[str, one_of(LOG_LEVELS)] = "info"
