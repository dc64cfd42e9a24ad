"""`penstock up`: the whole platform on this machine, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import scheduling, signals
from penstock.cleanup import shielded
from penstock.cli import options, settings
from penstock.cli.endpoints import deploy as next_steps
from penstock.cli.endpoints.deploy import artifact_uri, create_or_update, wait_in_service
from penstock.cli.output import note
from penstock.errors import CallerError, PenstockError
from penstock.gateway.http.listener_state import raise_limit

if TYPE_CHECKING:
    from penstock.api.platform import Addresses, Platform
    from penstock.config import ServerConfig


def up(
    host: options.Host = None,
    port: options.Port = None,
    grpc_port: options.GrpcPort = None,
    state_dir: options.StateDir = None,
    deploy: Annotated[
        list[str] | None,
        typer.Option("--deploy", metavar="NAME=ARTIFACT", help="Deploy this once it is up."),
    ] = None,
    instance_type: options.InstanceType = "ml.local.small",
    auth: options.Auth = None,
    insecure: options.Insecure = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    gateways: options.Gateways = None,
    database: Annotated[
        str | None, typer.Option("--database", help="postgresql://... instead of SQLite.")
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option("--fleet", help="ray://HOST:PORT or ray:auto instead of this machine."),
    ] = None,
    otlp_endpoint: options.OtlpEndpoint = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", help="debug, info, warning or error.")
    ] = None,
    config: options.ConfigFile = None,
) -> None:
    """Start the server; prints one line with the word ready and the addresses once it serves."""
    flags = {
        **options.listening(host, port, grpc_port, auth, insecure, tls_cert, tls_key, gateways),
        "control.database": database,
        "control.fleet": fleet,
        "state_dir": state_dir,
        "telemetry.otlp_endpoint": otlp_endpoint,
        "log_level": log_level,
    }
    resolved = settings.resolve(file=config, environ=os.environ, flags=flags)
    deployments = dict(_deployment(item) for item in deploy or ())
    run(resolved.config, deployments, instance_type=instance_type)


def run(config: ServerConfig, deployments: Mapping[str, str], *, instance_type: str) -> None:
    """Serves until a signal; deploys `deployments` (endpoint name -> artifact URI) meanwhile."""
    import uvloop  # noqa: PLC0415 - only the server needs it

    signals.block()
    # gRPC's core bypasses logging and prints a line on standard error for every failed handshake.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.basicConfig(
        level=config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    raise_limit()
    scheduling.wait_for_messages()
    with signals.given_back_on_error():
        uvloop.run(_serve(config, deployments, instance_type))


def _deployment(item: str) -> tuple[str, str]:
    name, equals, artifact = item.partition("=")
    if not equals or not name or not artifact:
        raise CallerError(
            "deploy-invalid",
            f"--deploy {item!r} has no name or no artifact",
            hint="Write NAME=ARTIFACT, the artifact being a folder, a model.tar.gz or a URI.",
        )
    return name, artifact_uri(artifact)


async def _serve(config: ServerConfig, deployments: Mapping[str, str], instance_type: str) -> None:
    from penstock.api.platform import Platform  # noqa: PLC0415 - `penstock --help` stays quick

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(signals.ASKED_TWICE)  # do not wait for requests in flight
        stop.set()

    signals.hear(loop, on_signal)

    async def serving(platform: Platform, addresses: Addresses) -> None:
        print(
            f"penstock ready: {addresses.http} (gRPC {addresses.grpc}),"
            f" state in {config.state_dir}",
            flush=True,
        )
        await _deploy_all(platform, deployments, instance_type, auth=config.listen.auth)

    if config.control.database:
        from penstock.api.replica import Replica  # noqa: PLC0415 - of SQLite there is only one

        await Replica(config, on_leading=serving, on_following=_tell_following).run(stop)
        return
    platform = Platform(config)
    try:
        addresses = await platform.start()
        deploying = asyncio.create_task(serving(platform, addresses))
        await stop.wait()
        deploying.cancel()
        await asyncio.wait([deploying])
    finally:
        await shielded(platform.stop())


def _tell_following(address: str, leader: str) -> None:
    print(f"penstock standby: {address}, follows {leader}", flush=True)


async def _deploy_all(
    platform: Platform, deployments: Mapping[str, str], instance_type: str, *, auth: bool
) -> None:
    client = _InProcess(platform, asyncio.get_running_loop())
    for name, uri in deployments.items():
        try:
            config_name = await asyncio.to_thread(
                create_or_update, client, name, uri, instance_type=instance_type
            )
            await asyncio.to_thread(wait_in_service, client, name, config_name)
        except PenstockError as error:
            note(f"error[{error.code}]: {error.message}")
            note(f"hint: {error.hint}" if error.hint else "")
            continue
        print(
            next_steps.text(name, platform.model_of(name), platform.addresses, auth=auth),
            flush=True,
        )


class _InProcess:
    """The SageMaker API inside this process, for the deployments of the command line."""

    def __init__(self, platform: Platform, loop: asyncio.AbstractEventLoop) -> None:
        self._platform = platform
        self._loop = loop

    def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
        call = self._platform.sagemaker(operation, members)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
