"""Room for real models: real instances estimate, measure and remember, on a machine told of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper
from tests.kit import model_files
from tests.kit.control_plane import ControlPlaneServer, deployment
from tests.kit.instances import FrameClient
from tests.kit.polling import until

from penstock.control.instances.entries import placed
from penstock.control.plane import ControlPlane
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec
from penstock.core.models.memory_need import with_headroom
from penstock.core.resources import ComputeResources
from penstock.fleet.local import LocalFleet, runtime_dir_for

MIB = 2**20


def weights(folder: Path, mib: int) -> Path:
    """An ONNX model of one matrix: `x` FP32 [n, 1024] -> `y`."""
    matrix = np.zeros((1024, mib * MIB // 4096), dtype=np.float32)
    model_files.write_onnx(
        folder / "model.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [model_files.value("x", TensorProto.FLOAT, ["n", 1024])],
        [model_files.value("y", TensorProto.FLOAT, ["n", matrix.shape[1]])],
        [("w", matrix)],
    )
    return model_files.tensor_model(folder)


def spec(folder: Path) -> DeploymentSpec:
    made = deployment(kind="ml.m5.xlarge")
    variant = made.variants[0]
    source = replace(variant.model, uri=folder.as_uri())
    slow = replace(variant, model=source, download_timeout_s=120.0, startup_timeout_s=120.0)
    return replace(made, variants=(slow,))


async def create(server: ControlPlaneServer, name: str, folder: Path) -> None:
    await server.plane.database.call(Store.create_endpoint, name, spec(folder), arn=name, now=1.0)
    server.plane.notify(name)


@asynccontextmanager
async def running(state_dir: Path, mib: int) -> AsyncIterator[ControlPlaneServer]:
    """Instances as `penstock up` starts them, on a machine of that size."""
    server = ControlPlaneServer(state_dir)
    server.plane = ControlPlane(
        server.plane._config,
        lambda: LocalFleet(runtime_dir_for(state_dir)),
        server.gateway,
        machine=ComputeResources(cores=2.0, memory_bytes=mib * MIB),
    )
    await server.plane.start()
    try:
        yield server
    finally:
        await server.plane.close()


async def test_what_does_not_fit_beside_the_first_is_refused_before_it_is_loaded(
    tmp_path: Path,
) -> None:
    """64 MiB of weights need 64 + 96 + 2.1 * 64 = 294 MiB by the rule, and 512 are there."""
    folder = weights(tmp_path / "model", 64)
    async with running(tmp_path / "s", 512) as server:
        await create(server, "first", folder)
        await server.reaches("InService", "first")
        await create(server, "second", folder)
        reason = (await server.reaches("Failed", "second")).failure_reason
        assert reason.startswith(
            "CapacityError: a model on an instance of type ml.m5.xlarge needs 0.29 GiB"
            " (estimated from its files) of memory; free on this machine: 0."
        )
        assert " of 0.50 GiB, first-blue-1-0-1 holds 0." in reason
        assert server.states("first") == ["ready"]


async def test_a_model_that_no_instance_on_this_machine_can_hold_is_refused(tmp_path: Path) -> None:
    folder = weights(tmp_path / "model", 256)
    async with running(tmp_path / "s", 112) as server:
        await create(server, "shop", folder)
        reason = (await server.reaches("Failed")).failure_reason
        assert reason.startswith(
            "CapacityError: a model on an instance of type ml.m5.xlarge needs at least 0.13 GiB"
            " of memory; such an instance may take 0.11 GiB on this machine."
        )


async def test_a_model_that_ran_here_is_placed_by_what_it_took(tmp_path: Path) -> None:
    folder = model_files.affine(tmp_path / "model")
    async with running(tmp_path / "s", 1024) as server:
        await create(server, "shop", folder)
        await server.reaches("InService")
        reconciler = server.plane._reconciler
        assert reconciler is not None
        entry, copies = next(reconciler._held())
        # It has not run: what was estimated stands, unless more than that was measured.
        seen_bytes = with_headroom(entry.own_bytes_max)
        assert placed(entry, copies).set_aside.memory_bytes == max(copies[0].need_bytes, seen_bytes)
        await asyncio.to_thread(ask, entry.address.removeprefix("unix:"))

        async def ran() -> bool:
            reconciler.work.status.ask()
            records = (tmp_path / "s" / "cache" / "memory").glob("*.json")
            return entry.ran and any('"ran": true' in path.read_text() for path in records)

        await until(ran)
        held = placed(entry, copies)
        taken, aside = held.taken_bytes, held.set_aside.memory_bytes
        assert 16 * MIB < taken < aside < taken + 200 * MIB
        await server.plane.database.call(Store.begin_update, "shop", spec(folder), now=2.0)
        server.plane.notify("shop")
        await server.reaches("InService")
        grants = [one.detail.rpartition(" ")[2] for one in server.plane.activities("shop")
                  if one.what == "room for the model"]  # fmt: skip
        assert grants == ["estimated", "measured"]


def ask(path: str) -> None:
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    body = json.dumps({"inputs": [tensor]}).encode()
    client = FrameClient(path)
    try:
        assert client.invoke(1, body, content_type="application/json").json["outputs"]
    finally:
        client.close()
