"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

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
    """Settings by their keys: how a server listens, from its command line. None = not given."""
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


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """For Typer: replaces a parameter whose type is a dataclass by options for its fields.

    So commands share options that are declared once. `command` gets an object of that class.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in signature.parameters.values():
        group: type = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter)
            continue
        groups[parameter.name] = group
        hints = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(
                one.name, parameter.kind, default=one.default, annotation=hints[one.name]
            )
            for one in fields(group)
        ]

    @functools.wraps(command)
    def with_groups(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
        command(**given)

    with_groups.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_groups
