"""Where a model comes from and how the machine reaches it, as plain values that travel as JSON.

The control plane makes an `ArtifactSource` from CreateModel and sends it to an instance, which
calls `prepare`. `ArtifactSettings` are the operator's: the part of a server's settings that an
instance needs. Neither does any I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from penstock.config import RATE_LIMIT_OFF, ServerConfig
from penstock.runtimes.container.settings import ContainerSettings
from penstock.runtimes.environments.settings import EnvironmentSettings

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSource:
    """One model's data, and what its owner states about it.

    `compressed` follows SageMaker's CompressionType: True is `Gzip` (the URI names an archive),
    False is `None` (files are taken as they are), None decides by reading the first bytes.
    """

    uri: str = ""  #: empty = the image brings its model itself (a mapped command)
    compressed: bool | None = None
    sha256: str = ""  #: expected digest of the archive, lower-case hex; empty = not checked
    image: str = ""
    image_id: str = ""  #: the image's id when its first copy was loaded; empty = not known yet
    environment: dict[str, str] = field(default_factory=dict)
    runtime: str = ""  #: overrides the runtime that detection would choose; empty = detect
    #: who made the model vouches for its pickles, which are loaded in a sandboxed process
    trusted: bool = False
    seconds_max: float = 0.0  #: ModelDataDownloadTimeoutInSeconds; 0 = the operator's bound
    #: Prefix of a multi-model endpoint, which no link may lead out of; empty = no target model.
    within: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ArtifactSource:
        """The inverse of `to_dict`; missing fields take their defaults, unknown ones are a bug."""
        return cls(**fields)

    def shown_uri(self) -> str:
        """The URI without credentials and signatures, for messages and logs."""
        return shown_uri(self.uri)


def shown_uri(uri: str) -> str:
    """`uri` without user, password, query and fragment: presigned URLs are secrets.

    A URI that can't be parsed is shown as its scheme alone.
    """
    try:
        parts = urlsplit(uri)
        if not parts.scheme:
            return uri
        if parts.scheme.lower() not in ("http", "https"):
            return uri
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        netloc = host if parts.port is None else f"{host}:{parts.port}"
    except ValueError:
        return f"{uri.split(':', 1)[0]}:..."
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSettings:
    """The operator's permissions and settings. Sizes in bytes, times in s."""

    s3_endpoint: str = ""  #: empty = the AWS environment variables, else AWS's own
    s3_local: dict[str, str] = field(default_factory=dict)  #: bucket -> directory
    image_commands: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: pattern -> argv
    trusted_artifacts: tuple[str, ...] = ()  #: URI prefixes that count as trusted
    #: "host:port" of the artifact door: files and paths lie on the server's machine; empty = here
    server_files: str = ""
    closed: tuple[str, ...] = ()  #: the server's own folders and files, which no URI may name
    environments: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    containers: ContainerSettings = field(default_factory=ContainerSettings)
    #: confines processes with models' code, except code of the artifacts that count as trusted
    isolation: bool = True
    response_cache_bytes: int = 0  #: for answers that an instance keeps; 0 = it keeps none
    #: (resource, or resource:device, copies of it), for all models of an instance together; None:
    #: nothing waits for resources
    rate_limit: tuple[tuple[str, int], ...] | None = None
    #: Large enough for any model of one machine: a 70B model in 16 bits is 140 GB.
    bytes_max: int = 256 * GIB
    files_max: int = 20_000  #: members of an archive, or files of a prefix or directory
    #: Deflate reaches 1032; real weights stay below 10, and tables of mostly zeros below 200.
    ratio_max: float = 200.0
    seconds_max: float = 3600.0  #: the largest ModelDataDownloadTimeoutInSeconds

    @classmethod
    def from_config(cls, config: ServerConfig) -> ArtifactSettings:
        control = config.control
        secrets = (one.secret_file for one in config.containers.registries.values())
        closed = (config.state_dir, control.key_file, config.listen.tls_key, *secrets)
        return cls(
            s3_endpoint=control.s3_endpoint,
            s3_local={bucket: str(path) for bucket, path in control.s3_local.items()},
            image_commands={key: tuple(argv) for key, argv in control.image_commands.items()},
            trusted_artifacts=tuple(control.trusted_artifacts),
            closed=tuple(str(path.absolute()) for path in closed if path is not None),
            isolation=control.isolation,
            response_cache_bytes=control.response_cache_bytes_max,
            rate_limit=(
                tuple(sorted(control.rate_limit_resources.items()))
                if control.rate_limit != RATE_LIMIT_OFF
                else None
            ),
            environments=EnvironmentSettings.from_config(control),
            containers=ContainerSettings.from_config(config),
        )

    def trusts(self, uri: str) -> bool:
        """Whether the operator allows pickle files of this URI to be loaded.

        A prefix ends at a "/": `s3://team/models` covers `s3://team/models/a.tar.gz` and not
        `s3://team/models-of-others/a.tar.gz`. A URI with ".." is never trusted.
        """
        if not uri or ".." in unquote(uri):
            return False
        return any(
            prefix and (uri == prefix or uri.startswith(prefix.rstrip("/") + "/"))
            for prefix in self.trusted_artifacts
        )

    def local_bucket(self, bucket: str) -> Path | None:
        folder = self.s3_local.get(bucket)
        return None if folder is None else Path(folder)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ArtifactSettings:
        """The inverse of `to_dict`, in JSON's types as well."""
        return msgspec.convert(fields, cls)
