"""The settings of a server: one tree of frozen dataclasses.

Defaults stand here with their reasons; TOML, environment and flags are merged over them in one
place (`cli/settings.py`). `core/` never sees this tree: it gets small specs of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from penstock.core.machine.containers import AUTO, CHOICES, READ_ONLY, ROOTS
from penstock.core.request.holding import ZERO_CAPACITY_MODES
from penstock.file_schema import one_of

#: Triton's words of --rate-limit.
RATE_LIMIT_OFF: Final = "off"
RATE_LIMIT_MODES: Final = (RATE_LIMIT_OFF, "execution_count")
CAPACITY_MEASURED: Final = "measured"
CAPACITY_STRICT: Final = "strict"
CAPACITY_MODES: Final = (CAPACITY_MEASURED, CAPACITY_STRICT)
#: Instances are processes of this machine.
FLEET_LOCAL: Final = "local"
ENVIRONMENTS_ON: Final = "on"
ENVIRONMENTS_OFF: Final = "off"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_Count = Annotated[int, Meta(ge=0)]
_Number = Annotated[float, Meta(ge=0)]
_Port = Annotated[int, Meta(ge=0, le=65_535)]
_Period = Annotated[int, Meta(ge=1, le=3600)]  #: s
_Periods = Annotated[int, Meta(ge=1, le=1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Where the server listens, and who may come in."""

    host: str = "127.0.0.1"  #: the default is loopback, which needs no credentials
    port: _Port = (
        8080  #: HTTP/1.1 and HTTP/2: AWS, Open Inference Protocol, OpenAI, admin; 0 = any free port
    )
    grpc_port: _Port = 8081  #: Open Inference Protocol over gRPC; 0 = any free port
    # One per four cores: more would take processor time from models.
    #: processes that share the ports; 0 = chosen by the machine's cores
    gateways: Annotated[int, Meta(ge=0, le=64)] = 0
    tls_cert: Path | None = None  #: PEM chain; both TLS files or neither
    tls_key: Path | None = None  #: PEM key of the chain
    auth: bool = False  #: every request needs SigV4 or a bearer key
    # Off as in Triton: whoever registers a region reads and writes memory of the server's user.
    #: callers on this machine may register shared memory for tensors
    client_shared_memory: bool = False
    insecure: bool = False  #: allow a non-loopback address without credentials
    #: names of the server that requests may use besides its own; "*" = any
    hosts: tuple[str, ...] = ()
    #: scheme://host of other servers' pages that may call this one, and read what OpenAI's door
    #: answers; "*" = any
    origins: tuple[str, ...] = ()
    # None as in Triton: headers are for servers, and most models don't look for them.
    #: headers below /v2 and at the gRPC port that a model sees among the request's parameters; a
    #: name that ends with "*" is the beginning of others
    forward_headers: tuple[str, ...] = ()

    def url(self, host: str, port: int) -> str:
        """Where the server is reached under this name or address."""
        scheme = "https" if self.tls_cert is not None else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitConfig:
    """Bounds of one gateway process."""

    #: size of a request's body; the default is InvokeEndpoint's limit in AWS
    body_bytes_max: Annotated[int, Meta(ge=1, le=2**30)] = 6_291_456
    #: size of a body below /v2; the default is Triton's own
    oip_body_bytes_max: Annotated[int, Meta(ge=1, le=2**30)] = 64 * 2**20
    #: size of a gRPC message; 0 = oip_body_bytes_max
    grpc_message_bytes_max: Annotated[int, Meta(ge=0, le=2**30)] = 0
    # Room for 85 of the largest bodies; a laptop with 8 GiB has room for its models as well.
    #: total size of the bodies of all requests that are being read or wait for an answer
    bodies_bytes_max: Annotated[int, Meta(ge=1, le=2**40)] = 512 * 2**20
    head_bytes_max: Annotated[int, Meta(ge=1024, le=2**20)] = 65_536  #: request line and headers
    #: connections at once; more are closed when they are made
    connections_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    # A new connection that sends nothing must not cost as much as an idle one may.
    head_timeout_s: _Number = 20.0  #: for a head, from its first byte (the first: from the connect)
    body_timeout_s: _Number = 60.0  #: for a body, from the head to its last byte
    keep_alive_s: _Number = 75.0  #: idle connections are closed after this
    #: for an answer; the default is AWS's for models, and a caller may ask for less
    request_timeout_s: Annotated[float, Meta(ge=0.001, le=3600)] = 60.0
    #: for an answer in pieces; the default is AWS's; at least request_timeout_s
    stream_timeout_s: Annotated[float, Meta(ge=0.001, le=86_400)] = 480.0
    drain_s_max: _Number = 30.0  #: time for requests in flight after SIGTERM
    # hold: a client that waits some seconds is better off than one that is refused for as long.
    #: what to do with a request that no copy can take: hold it, or refuse it as AWS does
    zero_capacity: Annotated[str, one_of(ZERO_CAPACITY_MODES)] = "hold"
    # A few minutes of a busy endpoint's calls, or half of the most connections.
    held_requests_max: _Count = 4096  #: requests of one endpoint that wait for a copy
    # A quarter of all bodies: an endpoint without copies must not starve the others.
    held_bytes_max: _Count = 128 * 2**20  #: size of their bodies
    # A few videos or images; waiting requests are in the database, however many there are.
    #: memory for bodies of asynchronous requests; also the most for one body
    async_bytes_max: Annotated[int, Meta(ge=128_000, le=2**30)] = 256 * 2**20
    # Two seconds of 1,000 calls of 32 KB; more only helps where a store is away for longer.
    #: memory for captured calls (DataCaptureConfig) that are not written yet; one endpoint's take
    #: half of it at most
    capture_bytes_max: Annotated[int, Meta(ge=65_536, le=2**40)] = 64 * 2**20
    # Capture goes on for months, and other things than this server need the disk.
    #: space that captured calls leave free on a disk of this machine
    capture_free_bytes_min: _Count = 2**30
    #: regular expressions, as RE2 reads them (extra `redact`): what they match in captured
    #: requests, answers and custom attributes is written as [redacted]
    capture_redact: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """The control plane."""

    database: str = ""  #: SQLAlchemy URL; empty = SQLite in the state directory
    #: URL at which servers on the same database reach this one; empty = derived from its address
    advertise: str = ""
    #: file with the key that encrypts access keys, the same for all servers of a database; none =
    #: keys.key in the state directory
    key_file: Path | None = None
    account_id: str = "123456789012"  #: AWS account in ARNs
    region: str = "us-east-1"  #: region in ARNs for requests without a credential scope
    s3_endpoint: str = ""  #: S3-compatible endpoint for s3:// artifacts; empty = AWS's own
    s3_local: dict[str, Path] = field(default_factory=dict)  #: bucket -> local directory
    topics: dict[str, str] = field(default_factory=dict)  #: ARN of an SNS topic, or "*" -> its URL
    #: URI prefixes of asynchronous inputs besides s3://, where auth is on
    async_inputs: tuple[str, ...] = ()
    image_commands: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  #: image pattern -> argv
    #: URI prefixes whose pickle files may be loaded, and whose code is not confined
    trusted_artifacts: tuple[str, ...] = ()
    isolation: bool = True  #: models' processes see only their own files (Linux 5.13 and later)
    #: on: models' processes get environments with the packages that they ask for; off: they run in
    #: the server's own
    environments: Annotated[str, one_of((ENVIRONMENTS_ON, ENVIRONMENTS_OFF))] = ENVIRONMENTS_ON
    # A few of PyTorch's, or dozens of smaller ones.
    environments_bytes_max: _Count = 32 * 2**30  #: disk for environments; those in use stay
    # PyTorch with CUDA takes some 8 GiB.
    environment_bytes_max: _Count = 16 * 2**30  #: disk for one environment
    # The download of the largest ones over a slow line; a load's own time limit holds as well.
    environment_s_max: Annotated[float, Meta(ge=1, le=86_400)] = 1800.0  #: to build one, s
    # Their code is run behind walls, as the model's is.
    #: packages without a wheel may be built from sources, where the kernel can confine that
    environment_sources: bool = True
    #: beginnings of URLs from which a requirements.txt may take packages; none: from the server's
    #: own index alone
    environment_indexes: tuple[str, ...] = ()
    environment_pythons: tuple[str, ...] = ()  #: interpreters for models, besides those found
    image_environments: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  #: image pattern -> requirements that it stands for; before the built-in table
    # PyPI's own builds for Linux are several GB of CUDA.
    #: index of PyTorch's builds for processors, for machines without a GPU whose installer has no
    #: settings of its own; empty = none
    torch_cpu_index: str = "https://download.pytorch.org/whl/cpu"
    # Notebooks name AWS's types out of habit, and a laptop would be full after two of them.
    #: measured, or strict: reserves memory for AWS's types, too
    capacity: Annotated[str, one_of(CAPACITY_MODES)] = CAPACITY_MEASURED
    instance_limits: dict[str, _Count] = field(
        default_factory=dict
    )  #: instance type -> most instances of it; others as far as there is room
    # Enough for a few models of tens of GiB, on the disk of a small server.
    cache_bytes_max: _Count = 64 * 2**30  #: disk for artifacts; those in use are never removed
    fleet: str = FLEET_LOCAL  #: where instances run: local, ray://host:port or ray:auto
    # Three attempts to start an endpoint: a cloud may take six minutes to bring a node.
    #: how long an instance waits for a node of a Ray cluster with enough room
    node_wait_s: Annotated[float, Meta(ge=0, le=3600)] = 120.0
    # Off as in Triton, which needs --cache-config: models' memory is planned without it.
    #: memory in each instance for answers that are given again, for models with response_cache
    response_cache_bytes_max: Annotated[int, Meta(ge=0, le=2**40)] = 0
    #: execution_count: models wait for the resources that their rate_limiter names; or off
    rate_limit: Annotated[str, one_of(RATE_LIMIT_MODES)] = RATE_LIMIT_OFF
    #: resource, or resource:device -> copies of it in each instance; none: as many as models need
    rate_limit_resources: dict[str, _Count] = field(default_factory=dict)
    own_host: str = ""  #: this machine's address for nodes; empty = the one that faces them
    node_cache_dir: str = ""  #: folder for artifacts on each node; empty = in its user's cache
    # One spare takes some 60 MB to 150 MB, depending on its imports; a laptop keeps none.
    #: instance processes that are started in advance, for any model
    warm_instances: Annotated[int, Meta(ge=0, le=64)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingConfig:
    """Auto scaling: how the alarms of target-tracking policies are made, and the fast path."""

    # A step of load is noticed within 35 s, and its end after 15 minutes. Two periods: a
    # datapoint is the mean of ten samples, so no single burst can fill both.
    high_resolution_period_s: _Period = 10  #: 1, 5, 10, 20, 30 or a multiple of 60
    high_resolution_high_periods: _Periods = 2  #: above the target before capacity is added
    high_resolution_low_periods: _Periods = 90  #: below the target before capacity is taken away
    standard_period_s: _Period = 60  #: as high_resolution_period_s
    standard_high_periods: _Periods = 3  #: as high_resolution_high_periods
    standard_low_periods: _Periods = 15  #: as high_resolution_low_periods
    #: share of the target below which a metric counts as low
    low_share: Annotated[float, Meta(ge=0.01, le=1.0)] = 0.9
    cooldown_s_max: _Number = 604_800.0  #: longer cooldowns of policies are shortened to this
    fast: bool = False  #: every target may ask for capacity each second, not only tagged ones


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """A registry that images are pulled from."""

    #: patterns of the names in it that may be pulled; none = all
    images: tuple[str, ...] = ()
    user: str = ""  #: who logs in there; empty = the engine's own credentials
    secret_file: Path | None = None  #: file with the user's password or token
    #: host, and maybe the beginning of names there, that is asked in its place
    mirror: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainersConfig:
    """Container images that a model names, and the engine that runs them."""

    #: what runs the images that it has: auto (Podman, else Docker), podman, docker, or off
    engine: Annotated[str, one_of(CHOICES)] = AUTO
    # None: a server of models needs none, except those that change their user (nginx).
    #: Linux capabilities that containers keep, such as SETUID
    capabilities: tuple[str, ...] = ()
    # The disk is everybody's, and most engines can't bound what a container writes to it.
    #: files of containers: read-only (besides folders in memory), or writable
    root: Annotated[str, one_of(ROOTS)] = READ_ONLY
    #: GiB that each may write to a writable root, where the engine's storage has quotas; 0 = not
    #: bounded
    root_gib: _Number = 0.0
    #: folders that containers have in memory besides /tmp, /var/tmp, /run and the volumes of their
    #: images, such as /var/cache/nginx
    scratch: tuple[str, ...] = ()
    # Nothing by default: whoever may create a model would choose which code comes from where.
    #: images that may be pulled, as REGISTRY/PATTERN: "docker.io/library/*"
    pull: tuple[str, ...] = ()
    #: host of a registry that images may be pulled from -> `images` (patterns of names; none =
    #: all), `user` with `secret_file`, `mirror` (host that is asked in its place)
    registries: dict[str, RegistryConfig] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Traces and metrics: where they go, and under which names."""

    otlp_endpoint: str = ""  #: base URL of a collector's OTLP over HTTP; empty = nothing is sent
    # OpenTelemetry's own default: a laptop records every request. A busy server sets its own
    # share.
    #: share of requests to record where the caller does not decide, 0 to 1
    trace_share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    #: interval of pushed metrics; the default is OpenTelemetry's; 0 = metrics are not sent
    metrics_every_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0
    service_name: str = "penstock"  #: service.name in all exported data
    # Off: most servers have no dashboard that reads them, and they say nothing new.
    #: /metrics shows models under Triton's names (nv_inference_*), too
    triton_metrics: bool = False

    @property
    def share_recorded(self) -> float:
        """As `trace_share`; 0 where traces are sent nowhere."""
        return self.trace_share if self.otlp_endpoint else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """All settings of `penstock up`."""

    state_dir: Path = Path()  #: folder of the server's own data, which no request may name
    listen: ListenConfig = field(default_factory=ListenConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    control: ControlConfig = field(default_factory=ControlConfig)
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    containers: ContainersConfig = field(default_factory=ContainersConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    #: least severe messages that are written
    log_level: Annotated[str, one_of(LOG_LEVELS)] = "info"
