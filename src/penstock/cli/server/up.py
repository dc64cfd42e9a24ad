"""`penstock up`: the whole platform on this machine, until SIGTERM or Ctrl-C.

`penstock serve DIR`: the same with one model. Both print what to type next: one call by boto3, curl
and tritonclient, made from the model's tensors.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import scheduling, signals, stacks
from penstock.cleanup import shielded
from penstock.cli import options, settings
from penstock.cli.endpoints.deploy import artifact_uri, create_or_update, wait_in_service
from penstock.cli.endpoints.endpoint_tags import endpoint_for
from penstock.cli.endpoints.repository import in_repository
from penstock.cli.endpoints.sample import PAIR, TEXT, call_text, concrete
from penstock.cli.output import note
from penstock.cli.waiting import ShownWait
from penstock.core.machine.containers import AUTO
from penstock.errors import CallerError, PenstockError
from penstock.gateway.http.listener_state import raise_limit
from penstock.runtimes.container import engine
from penstock.runtimes.container.settings import ContainerSettings

if TYPE_CHECKING:
    from penstock.api.platform import Addresses, Platform
    from penstock.config import ServerConfig


def up(
    address: options.GatewayAddressOptions = options.GATEWAY_ADDRESS,
    state_dir: options.StateDir = None,
    deploy: Annotated[
        list[str] | None,
        typer.Option("--deploy", metavar="NAME=ARTIFACT", help="Deploy this once it is up."),
    ] = None,
    instance_type: options.InstanceType = "ml.local.small",
    guard: options.GatewayGuardOptions = options.GATEWAY_GUARD,
    database: Annotated[
        str | None, typer.Option("--database", help="postgresql://... instead of SQLite.")
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option("--fleet", help="ray://HOST:PORT or ray:auto instead of this machine."),
    ] = None,
    otlp_endpoint: options.OtlpEndpoint = None,
    log_level: options.LogLevel = None,
    config: options.ConfigFile = None,
) -> None:
    """Start the server; prints one line with the word ready and the addresses once it serves."""
    flags = {
        **options.listening(address, guard),
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
    scheduling.wait_for_messages()
    run_until_signal(config, lambda stop: _serve(config, deployments, instance_type, stop))


def run_until_signal(
    config: ServerConfig, serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]]
) -> None:
    """Runs `serve`. Its event is set by the first signal; a second one ends the process."""
    import uvloop  # noqa: PLC0415 - only a server needs it

    async def served() -> None:
        stop = asyncio.Event()

        def on_signal() -> None:
            if stop.is_set():
                os._exit(signals.ASKED_TWICE)  # do not wait for requests in flight
            stop.set()

        signals.hear(asyncio.get_running_loop(), on_signal)
        await serve(stop)

    signals.block()
    stacks.write_when_asked()
    logging.basicConfig(
        level=config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    raise_limit()
    with signals.given_back_on_error():
        uvloop.run(served())


def _deployment(item: str) -> tuple[str, str]:
    name, equals, artifact = item.partition("=")
    if not equals or not name or not artifact:
        raise CallerError(
            "deploy-invalid",
            f"--deploy {item!r} has no name or no artifact",
            hint="Write NAME=ARTIFACT, the artifact being a folder, a model.tar.gz or a URI.",
        )
    return name, artifact_uri(artifact)


async def _serve(
    config: ServerConfig, deployments: Mapping[str, str], instance_type: str, stop: asyncio.Event
) -> None:
    from penstock.api.platform import Platform  # noqa: PLC0415 - `penstock --help` stays quick

    async def serving(platform: Platform, addresses: Addresses) -> None:
        print(
            f"penstock ready: {addresses.http} (gRPC {addresses.grpc}),"
            f" state in {config.state_dir}",
            flush=True,
        )
        await asyncio.gather(
            asyncio.to_thread(_look_at_containers, ContainerSettings.from_config(config)),
            _deploy_all(platform, deployments, instance_type, auth=config.listen.auth),
        )

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


def _look_at_containers(settings: ContainerSettings) -> None:
    """Says which engine runs images, or why none does, where one is installed or named; removes
    what a life before this one left behind. Blocks."""
    found = engine.decide(settings)
    if found.reason == "none-installed" and settings.engine == AUTO:
        return
    note(f"containers: {found.words}")
    if found.engine:
        for name in engine.remove_left_behind(found.engine, settings.owner):
            note(f"containers: removed {name}, which was left behind")


def _tell_following(address: str, leader: str) -> None:
    print(f"penstock standby: {address}, follows {leader}", flush=True)


async def _deploy_all(
    platform: Platform, deployments: Mapping[str, str], instance_type: str, *, auth: bool
) -> None:
    client = _InProcess(platform, asyncio.get_running_loop())
    for given, uri in deployments.items():
        try:
            name, served = await asyncio.to_thread(endpoint_for, client, given)
            create = partial(create_or_update, client, name, uri, instance_type=instance_type)
            config_name, *_ = await asyncio.to_thread(
                in_repository, create, name, uri, {}, served=served
            )
            with ShownWait(client, at_once=True) as waiting:
                await asyncio.to_thread(wait_in_service, client, name, config_name, waiting=waiting)
        except PenstockError as error:
            note(f"error[{error.code}]: {error.message}")
            note(f"hint: {error.hint}" if error.hint else "")
            continue
        print(
            next_steps(name, platform.model_of(name), platform.addresses, auth=auth),
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

    def deploying(self, endpoint: str) -> dict[str, Any]:
        call = self._platform.deploying(endpoint)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


def serve(
    artifact: Annotated[str, typer.Argument(help="Folder, model.tar.gz, s3:// or https:// URI.")],
    name: Annotated[str, typer.Option("--name", help="Endpoint name [the folder's].")] = "",
    address: options.GatewayAddressOptions = options.GATEWAY_ADDRESS,
    state_dir: options.StateDir = None,
    guard: options.GatewayGuardOptions = options.GATEWAY_GUARD,
    instance_type: options.InstanceType = "ml.local.small",
    config: options.ConfigFile = None,
) -> None:
    """Start the server with one model deployed, and print how to call it."""
    flags = options.listening(address, guard)
    flags["state_dir"] = state_dir
    resolved = settings.resolve(file=config, environ=os.environ, flags=flags)
    uri = artifact_uri(artifact)
    run(resolved.config, {name or name_from(uri): uri}, instance_type=instance_type)


def name_from(uri: str) -> str:
    """An endpoint's name from the last meaningful part of a URI."""
    parts = [part for part in uri.partition("://")[2].split("/") if part]
    while len(parts) > 1 and parts[-1] in {"artifact", "model", "model.tar.gz"}:
        parts.pop()
    stem = Path(parts[-1]).name.removesuffix(".tar.gz").removesuffix(".zip") if parts else "model"
    return re.sub(r"[^a-zA-Z0-9]+", "-", stem).strip("-")[:63] or "model"


NUMPY = {"FP32": "float32", "FP64": "float64", "INT64": "int64", "INT32": "int32"}


def next_steps(name: str, model: Mapping[str, Any], addresses: Addresses, *, auth: bool) -> str:
    """Snippets for a model with the `task` and `inputs` that its instance described.

    With `auth` they read their keys from the variables that `penstock keys create` prints.
    """
    scheme, _, host = addresses.http.partition("://")
    tls = ", ssl=True" if scheme == "https" else ""
    called = call_text(addresses.http, name, model, auth=auth)
    if not model.get("inputs"):
        return f"\nendpoint {name} is in service. Call it:\n\n{called}\n"
    return f"""
endpoint {name} is in service. Call it:

{called}

  python - <<'PY'
  import numpy as np, tritonclient.http as triton
  client = triton.InferenceServerClient("{host}"{tls})
{triton_lines(name, model, auth=auth)}
  PY
"""


def triton_lines(name: str, model: Mapping[str, Any], *, auth: bool) -> str:
    """The middle of a tritonclient script."""
    lines = ["  inputs = []"]
    tensors: list[tuple[str, str, list[int], str]] = []
    texts = [spec["name"] for spec in model.get("inputs") or [] if spec["datatype"] == "BYTES"]
    if "text" in texts:
        tensors = [
            (
                name,
                "BYTES",
                [1],
                f'np.array(["{PAIR if name == "text_pair" else TEXT}"], dtype=object)',
            )
            for name in texts
        ]
    else:
        batched = int(model.get("rows_max") or 0) > 0
        for tensor in model.get("inputs") or []:
            shape = concrete(tensor["shape"], batched=batched)
            values = _numpy(shape, tensor["datatype"])
            tensors.append((tensor["name"], tensor["datatype"], shape, values))
    for tensor, datatype, shape, values in tensors:
        lines.append(f'  inputs.append(triton.InferInput("{tensor}", {shape}, "{datatype}"))')
        lines.append(f"  inputs[-1].set_data_from_numpy({values})")
    headers = ""
    if auth:
        lines.append("  import os")
        lines.append("""  headers = {"Authorization": "Bearer " + os.environ["PENSTOCK_KEY"]}""")
        headers = ", headers=headers"
    lines.append(f'  print(client.infer("{name}", inputs{headers}).get_response())')
    return "\n".join(lines)


def _numpy(shape: list[int], datatype: str) -> str:
    kind = NUMPY.get(datatype, "float32")
    return f'np.zeros({shape}, dtype="{kind}")'
