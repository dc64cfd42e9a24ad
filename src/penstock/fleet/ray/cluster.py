"""Every call to Ray.

Calls are made in threads, because they block and because Ray must not touch this process's signals
(`signals.py` undoes what its core does to them below Python). Actors are owned by this process:
when it ends, by whatever means, they end, with all that they started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import ray
import ray.util.client
from ray._private import auto_init_hook
from ray.autoscaler.sdk import request_resources
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from penstock.errors import NotNowError
from penstock.fleet.base import InstanceSpec
from penstock.fleet.node import InstanceNode

_log = logging.getLogger(__name__)

Json = dict[str, Any]

#: What a call raises when the cluster, a node or an actor is the cause.
CALL_FAILED: Final = (RayError, TimeoutError, ConnectionError)
#: Ray's client says so, in an error of no class of its own, once it has given up its connection.
_GIVEN_UP: Final = "Ray Client is not connected"
#: Each may block for as long as a wait for room takes; many instances may wait at once.
_THREADS: Final = 32
_AUTOSCALER_S_MAX: Final = 30.0


@dataclass(eq=False, slots=True)
class HeldActor:
    """What the fleet knows of one instance."""

    spec: InstanceSpec
    bundle: dict[str, float]  #: what it reserves on its node, under Ray's names
    group: Any = None  #: its Ray placement group
    actor: Any = None  #: the Ray actor that starts and watches it on its node
    log: BinaryIO | None = None
    stopping: bool = False
    watcher: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)  #: set once all of it is removed


class _Actor(InstanceNode):
    """An `InstanceNode` on the node that Ray chose."""

    def __init__(self, instance_id: str) -> None:
        super().__init__(instance_id, ray.util.get_node_ip_address())


class Cluster:
    """The connection to a cluster; a process has only one. `close` ends it."""

    def __init__(self, address: str) -> None:
        """`address`: as `ray.init` takes it. Blocks. Raises NotNowError `ray-unreachable`."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ray")
        try:
            self._threads.submit(_connect, address).result()
        except BaseException:
            self._threads.shutdown(wait=False)
            raise

    async def close(self) -> None:
        await self._in_thread(ray.shutdown)
        self._threads.shutdown(wait=False)

    async def make_group(self, bundle: dict[str, float]) -> Any:
        """A placement group of one bundle; `is_placed` says when it has a place."""
        return await self._in_thread(_make_group, bundle)

    async def is_placed(self, group: Any, wait_s: float) -> bool:
        placed: bool = await self._in_thread(group.wait, wait_s)
        return placed

    async def make_actor(self, group: Any, bundle: dict[str, float], instance_id: str) -> Any:
        """An `InstanceNode` where the group is; its methods are called by `answer`."""
        return await self._in_thread(_make_actor, group, bundle, instance_id)

    async def remove(self, actor: Any, group: Any) -> None:
        """Removes both; either may be None."""
        await self._in_thread(_remove, actor, group)

    async def hosts(self) -> set[tuple[str, str]]:
        """Host names and addresses of all nodes."""
        nodes = await self._in_thread(ray.nodes)
        return {
            (str(one["NodeManagerHostname"]), str(one["NodeManagerAddress"]))
            for one in nodes
            if one["Alive"]
        }

    async def ask_for_nodes(self, bundles: list[dict[str, float]]) -> None:
        """Requests nodes for all of `bundles` from the autoscaler; `bundles` includes what already
        runs."""
        await self._in_thread(_request, bundles)

    async def answer(self, method: Any, *args: Any, seconds: float) -> Json:
        """What an actor's method returns. Raises one of `CALL_FAILED`, or what the method does."""
        called = await self._in_thread(lambda: method.remote(*args).future())
        future = asyncio.wrap_future(called)
        done, _ = await asyncio.wait([future], timeout=seconds)
        if not done:
            future.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise TimeoutError(f"no answer within {seconds:g} s")
        answer: Json = future.result()
        return answer

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)
        except Exception as error:
            if type(error) is Exception and _GIVEN_UP in str(error):
                raise ConnectionError(str(error)) from error
            raise


def is_dead(error: BaseException) -> bool:
    """Whether Ray is sure that the actor is dead, and not only unavailable."""
    return type(error).__name__ == "ActorDiedError"


def node_lost(instance_id: str, error: BaseException) -> NotNowError:
    """An instance's node went away, or fell silent, while it was to start there."""
    kind = "its node is lost" if isinstance(error, RayActorError) else "its node does not answer"
    return NotNowError(
        "node-lost", f"instance {instance_id} did not start: {kind}: {last_line(error)}"
    )


def last_line(error: BaseException) -> str:
    """Ray's errors are pages; the last line names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


def _connect(address: str) -> None:
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Otherwise a call without a connection would start a cluster on this machine.
    auto_init_hook.enable_auto_connect = False
    try:
        ray.init(
            address,
            namespace="penstock",
            log_to_driver=False,
            configure_logging=False,
            ignore_reinit_error=True,
        )
    except (RayError, ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
        raise NotNowError(
            "ray-unreachable",
            f"the Ray cluster at {address} can't be reached: {last_line(error)}",
            hint="'ray status' there tells whether it runs; see docs/howto/ray.md.",
        ) from error


def _make_group(bundle: dict[str, float]) -> Any:
    return placement_group([bundle], strategy="STRICT_PACK")


def _make_actor(group: Any, bundle: dict[str, float], instance_id: str) -> Any:
    made = ray.remote(_Actor).options(
        num_cpus=bundle.get("CPU", 0),
        num_gpus=bundle.get("GPU", 0),
        memory=bundle.get("memory", 0),
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=0
        ),
    )
    return made.remote(instance_id)


def _remove(actor: Any, group: Any) -> None:
    if actor is not None:
        with suppress(*CALL_FAILED):
            ray.kill(actor)
    if group is not None:
        remove_placement_group(group)


def _request(bundles: list[dict[str, float]]) -> None:
    """Without an autoscaler the request has no effect; no start fails because of that."""
    try:
        if ray.util.client.ray.is_connected():  # its interface exists only in processes on nodes
            asked = ray.remote(num_cpus=0)(request_resources).remote(bundles=bundles)
            ray.get(asked, timeout=_AUTOSCALER_S_MAX)
        else:
            request_resources(bundles=bundles)
    except Exception as error:
        _log.warning("Ray's autoscaler could not be asked for nodes: %s", last_line(error))
