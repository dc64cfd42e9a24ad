"""From the `load` operation of the control connection to a running model: its artifact is fetched,
then started, each with a time limit.

Between the two the model's memory need is known, and placement may answer that there is no room.
This module does not depend on the model's runtime (`start` does).

A job's copy has other settings: nobody waits for one answer, all wait for the last. One lane of one
thread per core loses no time in waiting for other threads; online, where one answer is wanted soon,
the description's lanes are used. No graphs of one shape are compiled while a job's copy runs
(`runtimes.openvino.shapes`): they depend on timing, and a span that is repeated must give the same
bytes.

A variant's environment may also name the service level of its copies (`served_with`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.description.builds import build_of
from penstock.artifacts.description.description import Batching, ModelDescription
from penstock.artifacts.detection.detect import Detected
from penstock.artifacts.detection.generation_layout import served_as_weights
from penstock.artifacts.detection.runtime_reason import runtime_reason
from penstock.artifacts.models.index import own_name
from penstock.artifacts.prepare import prepare
from penstock.artifacts.sources.source import ArtifactSource
from penstock.artifacts.triton.triton_models import named
from penstock.compile.environment import obtain_environment
from penstock.compile.serving import compile_for_serving, needs_compiling
from penstock.core.models.instruction_sets import BuildChoice
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError
from penstock.instance.loading.environments import Environments, provided
from penstock.instance.loading.loaded import Loaded
from penstock.instance.loading.phases import COMPILING, FETCHING, LOADING
from penstock.instance.loading.start import start
from penstock.instance.settings import InstanceSettings
from penstock.runtimes import registry
from penstock.runtimes.base import INSTALLING, LaneListener, LoadContext
from penstock.runtimes.confinement import isolated
from penstock.runtimes.environments.provide import Provider
from penstock.runtimes.environments.store import EnvironmentLease
from penstock.runtimes.processor import instruction_set_here
from penstock.runtimes.python.toolkit_variables import MULTI_MODEL


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCall:
    """One of several containers of a model."""

    hostname: str
    source: ArtifactSource
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadCall:
    """The `load` operation, checked."""

    copy: int
    endpoint: str
    variant: str
    source: ArtifactSource
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    cores: float
    memory_bytes_max: int
    accelerators: int
    download_timeout_s: float = 3600.0
    startup_timeout_s: float = 600.0
    network_isolated: bool = False  #: EnableNetworkIsolation
    #: Fields of Batching that replace the description's
    batching: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: True: others go before most of its requests, which have the last priority level to
    #: themselves.
    waits_for_others: bool = False
    #: Settings of a multi-model endpoint; `source` is then a prefix of target models
    multi_model: dict[str, Any] | None = None
    target_model: str = ""  #: its name, for the copy that hosts it
    base_copy: int = 0  #: for an adapter: the copy of its base into which it is loaded
    hostname: str = ""  #: of one container among several
    #: the containers of a model of several; `source` and `environment` are then no container's
    containers: tuple[ContainerCall, ...] = ()
    direct: bool = False  #: each request names its container; else each answer is the next request

    @property
    def served_as(self) -> str:
        """The model's name for its callers."""
        return f"{self.endpoint}:{self.target_model}" if self.target_model else self.endpoint

    @classmethod
    def from_dict(cls, call: dict[str, Any], settings: InstanceSettings) -> LoadCall:
        """Raises CallerError for missing or impossible fields. Of what is not named, or 0, the copy
        gets all that the instance has."""
        whole = {
            "cores": settings.cores,
            "memory_bytes_max": settings.memory_bytes,
            "accelerators": settings.accelerators,
        }
        given = {name: value for name, value in call.items() if value or name == "accelerators"}
        try:
            return msgspec.convert(whole | given, cls, strict=False)
        except msgspec.ValidationError as error:
            raise CallerError("bad-control-call", f"load: {error}") from None


T = TypeVar("T")


async def brought(call: LoadCall, work: Callable[[], T], cancelled: threading.Event) -> T:
    """The result of `work`, which runs in a thread and stops once `cancelled` is set; it is set
    when this call ends in any way. Raises NotNowError (`download-timeout`), and the exceptions of
    `work`."""
    try:
        async with asyncio.timeout(call.download_timeout_s):
            return await asyncio.to_thread(work)
    except TimeoutError:
        raise NotNowError(
            "download-timeout",
            f"{call.source.shown_uri()} was not here within {call.download_timeout_s:g} s",
            hint="Raise ModelDataDownloadTimeoutInSeconds, or bring the artifact nearer.",
        ) from None
    finally:
        cancelled.set()


LATENCY_P99_MS = "PENSTOCK_LATENCY_P99_MS"


def served_with(batching: Batching, environment: Mapping[str, str]) -> Batching:
    """`batching` with the service level from the environment, if it has one.

    Raises CallerError (`environment-invalid`) unless it is a number of milliseconds above 0.
    """
    text = environment.get(LATENCY_P99_MS)
    if text is None:
        return batching
    try:
        latency_ms = float(text)
    except ValueError:
        latency_ms = math.nan
    if not 0 < latency_ms < math.inf:
        raise CallerError(
            "environment-invalid",
            f"{LATENCY_P99_MS} is {text!r}",
            hint="Give a number of milliseconds above 0, as in 10 or 2.5.",
        )
    return dataclasses.replace(batching, latency_s_p99_max=latency_ms / 1000)


#: Names of endpoints have no slash.
_JOBS: Final = "transform-job/"


def of_job(endpoint: str) -> bool:
    """Whether the copies of an endpoint with this name do offline work."""
    return endpoint.startswith(_JOBS)


def for_throughput(description: ModelDescription, cores: float) -> ModelDescription:
    """`cores`: of the instance; it may run on fewer than that."""
    record = registry.record(description.runtime)
    if not record.lane_per_core or description.task == "text2text-generation":
        return description
    lanes = max(1, min(int(cores), len(os.sched_getaffinity(0))))
    return dataclasses.replace(description, lanes=lanes, threads_per_lane=1, pinned=False)


_LOG = logging.getLogger(__name__)

#: Extra time for runtimes that watch the time themselves: their errors are more precise.
_STORY_S = 9.0


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A model that is fetched and checked, and not loaded."""

    context: LoadContext
    digest: str  #: digest of its artifact in the cache
    why: str = ""  #: why it has this runtime, for people
    #: the environments of its processes, held from now on
    environments: Environments = dataclasses.field(default_factory=Environments)
    #: for a model of several containers: each of them; the fields above are the first one's, but
    #: the digest is that of all
    containers: tuple[Prepared, ...] = ()
    direct: bool = False  #: as in `LoadCall`


#: (cache, compiler of weights, event that is set when the load was cancelled) -> the artifact.
Fetch = Callable[[ArtifactCache, Callable[[Path, str], Path], threading.Event], Detected]


def _unseen(phase: str) -> None:
    """Nobody waits who could be told."""


async def prepared(
    call: LoadCall,
    settings: InstanceSettings,
    fetch: Fetch | None = None,
    *,
    phase: Callable[[str], None] = _unseen,
) -> Prepared:
    """Fetches the artifact. Raises a PenstockError that names file, cause and remedy.

    `fetch`: how to fetch it, where `call.source` alone is not enough. `phase`: called on any thread
    with what is done now (`phases`).
    """
    until = asyncio.get_running_loop().time() + call.download_timeout_s
    phase(FETCHING)
    detected = await _detected(call, settings, fetch, phase)
    description = detected.description
    if description.triton is not None and not description.name:
        description = named(description, own_name(call.target_model) or call.served_as)
    if call.batching:
        description = _overruled(description, call.batching)
    target = {MULTI_MODEL: "true"} if call.target_model else {}
    environment = {**call.source.environment, **call.environment, **target}
    batching = served_with(description.batching, environment)
    if call.waits_for_others:
        batching = dataclasses.replace(batching, priorities=batching.priorities + 1)
    description = dataclasses.replace(description, batching=batching)
    if of_job(call.endpoint):
        description = for_throughput(description, call.cores)
    context = LoadContext(
        model_dir=detected.root,
        description=description,
        endpoint_name=call.served_as,
        variant_name=call.variant,
        cores=call.cores,
        memory_bytes_max=call.memory_bytes_max,
        accelerators=call.accelerators,
        environment=environment,
        cache_dir=settings.cache_dir / "compiled",
        private_dirs=_private_dirs(settings),
        isolated=settings.artifact.isolation,
        network_isolated=call.network_isolated,
        startup_timeout_s=call.startup_timeout_s,
        log=_model_log(call),
        phase=phase,
        offline=of_job(call.endpoint),
        response_cache_bytes=settings.artifact.response_cache_bytes,
        rate_limit=settings.artifact.rate_limit,
        container_owner=settings.artifact.containers.owner,
        container_walls=settings.artifact.containers.walls,
        hostname=call.hostname,
    )
    await asyncio.to_thread(isolated.check, context)
    provider = Provider(_environments_dir(settings), settings.artifact.environments)
    environments = await provided(provider, context, until)
    why = runtime_reason(detected, call.source)
    return Prepared(environments.told(context), detected.digest, why, environments)


async def load(model: Prepared, listener: LaneListener) -> Loaded:
    """Starts the model. Raises a PenstockError that names file, cause and remedy."""
    startup_timeout_s = model.context.startup_timeout_s
    model.context.phase(LOADING)
    try:
        async with asyncio.timeout(startup_timeout_s + _STORY_S):
            loaded = await start(model.context, listener)
    except TimeoutError:
        raise ModelError(
            "load-timeout",
            f"the model did not start within {startup_timeout_s:g} s",
            hint="Raise ContainerStartupHealthCheckTimeoutInSeconds.",
        ) from None
    except PenstockError as error:
        raise model.environments.explained(error) from None
    loaded.build = await asyncio.to_thread(_build, model.context)
    loaded.described |= {
        "why": model.why,
        "folder": str(model.context.model_dir),
        "interpreter": model.context.interpreter,
        "file": model.context.description.file,
    }
    description = model.context.description
    if description.image:
        loaded.described["image"] = {
            "id": description.image,
            "resolved": description.image_resolved,
        }
    loaded.environments = model.environments
    if told := model.environments.to_dict():
        loaded.described |= {"environments": told}
    return loaded


def _build(context: LoadContext) -> BuildChoice | None:
    """The chosen build of the artifact, and why; also logged."""
    found = build_of(context.model_dir, instruction_set_here().name)
    if found is not None:
        needs = f", which needs {found.build.needs}," if found.build.needs else ""
        over = f"; can't run here: {', '.join(found.passed_over)}" if found.passed_over else ""
        context.log(
            f"build {found.build.folder}{needs} on {found.instruction_set}: {found.reason}{over}"
        )
    return found


async def _detected(
    call: LoadCall, settings: InstanceSettings, fetch: Fetch | None, phase: Callable[[str], None]
) -> Detected:
    cancelled, log = threading.Event(), _model_log(call)
    runtime = call.source.runtime or call.source.image.removeprefix("local://")

    def work() -> Detected:
        cache = ArtifactCache(settings.cache_dir / "artifacts")
        if fetch is not None:
            return fetch(cache, compiled, cancelled)
        return prepare(
            call.source,
            cache,
            settings.artifact,
            compile_uncompiled=compiled,
            cancelled=cancelled,
            instruction_set=instruction_set_here().name,
            log=log,
        )

    def compiled(root: Path, digest: str) -> Path:
        """Weights from a Hugging Face directory, compiled once per content for this processor."""
        if not needs_compiling(root) or served_as_weights(root, runtime, call.source.environment):
            return root
        phase(COMPILING)
        return compile_for_serving(
            root,
            settings.cache_dir / "compiled-models",
            digest=digest,
            timeout_s=call.download_timeout_s,
            cancelled=cancelled,
            log=log,
            environment=environment if settings.artifact.environments.enabled else None,
        )

    def environment() -> EnvironmentLease:
        phase(INSTALLING)
        lease = obtain_environment(
            _environments_dir(settings),
            settings.artifact.environments,
            cancelled,
            seconds=call.download_timeout_s,
            log=log,
        )
        phase(COMPILING)
        return lease

    return await brought(call, work, cancelled)


def _environments_dir(settings: InstanceSettings) -> Path:
    """Where this machine's environments are."""
    return settings.cache_dir / "environments"


def _private_dirs(settings: InstanceSettings) -> tuple[Path, ...]:
    """The platform's folders on this machine. The cache is a part of the state directory."""
    cache = settings.cache_dir
    state = cache.parent if (cache.parent / "lock").exists() else cache
    scheme, _, place = settings.address.partition(":")
    return (state, Path(place).parent) if scheme == "unix" else (state,)


def _overruled(description: ModelDescription, fields: dict[str, Any]) -> ModelDescription:
    try:
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
        }
        batching = dataclasses.replace(description.batching, **values)
    except TypeError as error:
        raise CallerError("bad-control-call", f"load: batching: {error}") from None
    return dataclasses.replace(description, batching=batching)


def _model_log(call: LoadCall) -> Callable[[str], None]:
    name = f"{call.endpoint}/{call.variant} copy {call.copy}"
    if call.target_model:
        name += f" model {call.target_model}"
    if call.hostname:
        name += f" container {call.hostname}"
    return lambda line: _LOG.info("[%s] %s", name, line)
