"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Url = Annotated[
    str, typer.Option("--url", help="Server address; PENSTOCK_URL, else http://127.0.0.1:8080.")
]
Key = Annotated[str, typer.Option("--key", help="Bearer key, where the server asks for one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML settings.", envvar="PENSTOCK_CONFIG")
]
StateDir = Annotated[
    Path | None, typer.Option("--state-dir", help="Where the server keeps its state.")
]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on [127.0.0.1].")]
Port = Annotated[int | None, typer.Option("--port", help="HTTP port [8080]; 0 = any.")]
GrpcPort = Annotated[int | None, typer.Option("--grpc-port", help="gRPC port [8081]; 0 = any.")]
Gateways = Annotated[
    int | None,
    typer.Option(
        "--gateways", help="Processes that share the ports; 0 = by the machine's cores [0]."
    ),
]
Auth = Annotated[
    bool | None, typer.Option("--auth", help="Ask for credentials (penstock keys create).")
]
Insecure = Annotated[
    bool | None,
    typer.Option("--insecure", help="Let anybody in who reaches a non-loopback address."),
]
TlsCert = Annotated[Path | None, typer.Option("--tls-cert", help="PEM chain.")]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", help="PEM key.")]
OtlpEndpoint = Annotated[
    str | None,
    typer.Option(
        "--otlp-endpoint", metavar="URL", help="Send traces and metrics to this collector."
    ),
]
InstanceType = Annotated[
    str, typer.Option("--instance-type", help="Of the catalogue, for example ml.local.small.")
]
Count = Annotated[int, typer.Option("--count", min=1, help="Number of instances.")]


def listening(
    host: str | None,
    port: int | None,
    grpc_port: int | None,
    auth: bool | None,
    insecure: bool | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    gateways: int | None,
) -> dict[str, Any]:
    """Settings by their keys: how a server listens, as its command line says. None = not said."""
    return {
        "listen.host": host,
        "listen.port": port,
        "listen.grpc_port": grpc_port,
        "listen.auth": auth,
        "listen.insecure": insecure,
        "listen.tls_cert": tls_cert,
        "listen.tls_key": tls_key,
        "listen.gateways": gateways,
    }
