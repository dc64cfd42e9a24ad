"""Options that several commands share."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from penstock.cli.client import Client
from penstock.cli.waiting import ShownWait
from penstock.errors import PenstockError

Command = TypeVar("Command", bound=Callable[..., None])

#: A shell waits for its completions.
_COMPLETION_S: Final = 2.0


def endpoint_names(incomplete: str) -> list[str]:
    """Names of endpoints that begin so, for completion by a shell, from the server that the
    environment names. Where it does not answer there are none: a shell has no place for errors."""
    with contextlib.suppress(PenstockError, OSError):
        client = Client(timeout_s=_COMPLETION_S)
        members = {"NameContains": incomplete} if incomplete else {}
        listed = client.sagemaker("ListEndpoints", MaxResults=100, **members)["Endpoints"]
        names = (one["EndpointName"] for one in listed)
        return sorted(name for name in names if name.startswith(incomplete))
    return []


EndpointName = Annotated[
    str, typer.Argument(help="Name of the endpoint.", autocompletion=endpoint_names)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML settings.", envvar="PENSTOCK_CONFIG")
]
StateDir = Annotated[
    Path | None, typer.Option("--state-dir", help="Where the server keeps its state.")
]
OtlpEndpoint = Annotated[
    str | None,
    typer.Option(
        "--otlp-endpoint", metavar="URL", help="Send traces and metrics to this collector."
    ),
]
LogLevel = Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.")]
InstanceType = Annotated[
    str, typer.Option("--instance-type", help="Of the catalogue, for example ml.local.small.")
]
Count = Annotated[int, typer.Option("--count", min=1, help="Number of instances.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Which server a command calls, and with which key."""

    url: Annotated[
        str, typer.Option("--url", help="Server address; PENSTOCK_URL, else http://127.0.0.1:8080.")
    ] = ""
    key: Annotated[
        str, typer.Option("--key", help="Bearer key, where the server asks for one.")
    ] = ""

    def client(self, *, timeout_s: float = 70.0) -> Client:
        return Client(self.url, key=self.key, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(ServerOptions):
    """The same for a command that also prints JSON."""

    json_: Json = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOptions(ReportOptions):
    """The same for a command that may wait for long."""

    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show what it waits for.")] = (
        False
    )

    def waiting(self, client: object, *, at_once: bool = False) -> ShownWait:
        return ShownWait(client, shown=not (self.quiet or self.json_), at_once=at_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressOptions:
    """Where a server listens. None = not given, here and below."""

    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on [127.0.0.1].")
    ] = None
    port: Annotated[int | None, typer.Option("--port", help="HTTP port [8080]; 0 = any.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAddressOptions(AddressOptions):
    """The same for a server with gRPC."""

    grpc_port: Annotated[
        int | None, typer.Option("--grpc-port", help="gRPC port [8081]; 0 = any.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """Who may come in."""

    auth: Annotated[
        bool | None, typer.Option("--auth", help="Ask for credentials (penstock keys create).")
    ] = None
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Let anybody in who reaches a non-loopback address."),
    ] = None
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="PEM chain.")] = None
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="PEM key.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayGuardOptions(GuardOptions):
    """The same, and how many processes let them in."""

    gateways: Annotated[
        int | None,
        typer.Option(
            "--gateways", help="Processes that share the ports; 0 = by the machine's cores [0]."
        ),
    ] = None


#: Nothing given: defaults of parameters.
SERVER: Final = ServerOptions()
REPORT: Final = ReportOptions()
WAIT: Final = WaitOptions()
ADDRESS: Final = AddressOptions()
GATEWAY_ADDRESS: Final = GatewayAddressOptions()
GUARD: Final = GuardOptions()
GATEWAY_GUARD: Final = GatewayGuardOptions()


def listening(address: AddressOptions, guard: GuardOptions) -> dict[str, Any]:
    """Settings by their keys: how a server listens, from its command line."""
    return {f"listen.{name}": value for name, value in (asdict(address) | asdict(guard)).items()}


def command(app: typer.Typer, name: str) -> Callable[[Command], Command]:
    """As `app.command(name)`, for commands that may have groups of options (`expanded`)."""

    def add(function: Command) -> Command:
        app.command(name)(expanded(function))
        return function

    return add


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
