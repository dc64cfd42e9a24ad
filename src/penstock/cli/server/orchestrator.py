"""`penstock orchestrator`: a gateway whose targets are regions, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cleanup import shielded
from penstock.cli import options, settings
from penstock.cli.server.up import run_until_signal

if TYPE_CHECKING:
    from penstock.api.traffic.orchestrator import Orchestrator
    from penstock.config import ServerConfig
    from penstock.orchestrator.regions_file import Regions

#: s. Regions that run answer at once; after this, the command reports that none does.
_REACHED_S_MAX: Final = 2.0


def orchestrator(
    regions: Annotated[Path, typer.Option("--regions", help="YAML file of the regions.")],
    address: options.AddressOptions = options.ADDRESS,
    state_dir: options.StateDir = None,
    guard: options.GuardOptions = options.GUARD,
    otlp_endpoint: options.OtlpEndpoint = None,
    log_level: options.LogLevel = None,
    config: options.ConfigFile = None,
) -> None:
    """Send requests on to regions; prints one line with the word ready once it reaches one."""
    flags = {
        **options.listening(address, guard),
        "state_dir": state_dir,
        "telemetry.otlp_endpoint": otlp_endpoint,
        "log_level": log_level,
    }
    resolved = settings.resolve(file=config, environ=os.environ, flags=flags)
    from penstock.orchestrator.regions_file import read_regions  # noqa: PLC0415 - quick --help

    run(resolved.config, read_regions(regions))


def run(config: ServerConfig, regions: Regions) -> None:
    """Serves until a signal."""
    run_until_signal(config, lambda stop: _serve(config, regions, stop))


async def _first_region(served: Orchestrator, stop: asyncio.Event, timeout_s: float | None) -> bool:
    """Waits for a first region or for `stop`; False: neither came in time."""
    waits = [asyncio.ensure_future(one.wait()) for one in (served.reached, stop)]
    done, left = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for one in left:
        one.cancel()
    return bool(done)


async def _serve(config: ServerConfig, regions: Regions, stop: asyncio.Event) -> None:
    from penstock.api.traffic.orchestrator import Orchestrator  # noqa: PLC0415

    served = Orchestrator(config, regions)
    try:
        url = await served.start()
        names = ", ".join(one.name for one in regions.access)
        if not await _first_region(served, stop, _REACHED_S_MAX):
            print(
                f"penstock orchestrator waits: {url}, none of the regions {names} can be reached",
                flush=True,
            )
            await _first_region(served, stop, None)
        if not stop.is_set():
            print(f"penstock orchestrator ready: {url}, regions {names}", flush=True)
            await stop.wait()
    finally:
        await shielded(served.stop())
