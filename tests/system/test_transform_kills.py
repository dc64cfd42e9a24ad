"""A transform job whose server and instances are killed at random moments writes what one that is
left alone writes: byte for byte, no record lost and none twice.

Of a native model, and of one of somebody's own code, whose process is killed too. A seed gives the
schedule, and is printed. By itself this file runs a few kills; `KILLS`, `RECORDS` and `SEED` set
others, and so does

    python -m tests.system.test_transform_kills native 100 200000 7
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.kit import model_files
from tests.kit.processes import children_of, instances_of
from tests.kit.python_models import python_model
from tests.kit.servers import up
from tests.kit.transform import TransformSite

#: A job is a guest: on a machine that others use it takes what they leave.
pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("KILLS", "4"))
RECORDS = int(os.environ.get("RECORDS", "8000"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)

SERVER, INSTANCE, WORKER, HALF_WRITTEN = "server", "instance", "worker", "half-written output"
NATIVE, OWN_CODE = "native", "own-code"
#: A record has as many bytes, so that few of them are many spans.
RECORD_BYTES = 128
OBJECT_RECORDS = 2000
_WIDTH = 2048


def slow_model(folder: Path) -> Path:
    """`x` FP32 [n, 4] -> `y` FP32 [n, 3], through a layer that keeps a core busy for a while."""
    rng = np.random.default_rng(1)
    sizes = (4, _WIDTH, _WIDTH, 3)
    layers = [
        (f"w{at}", rng.normal(size=shape).astype(np.float32) / 32)
        for at, shape in enumerate(pairwise(sizes))
    ]
    nodes, last = [], "x"
    for at in range(len(layers)):
        result = "y" if at == len(layers) - 1 else f"h{at}"
        nodes.append(onnx.helper.make_node("MatMul", [last, f"w{at}"], [result]))
        last = result
    model_files.write_onnx(
        folder / "model.onnx",
        nodes,
        [model_files.value("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [model_files.value("y", onnx.TensorProto.FLOAT, ["n", 3])],
        layers,
    )
    return model_files.tensor_model(folder, rows_max=64)


def own_code(folder: Path) -> Path:
    """The sum of each row, in a process of its own, with a pause for each."""
    code = r"""
        import time

        def model_fn(folder):
            return None

        def transform_fn(model, body, content_type, accept):
            text = body if isinstance(body, str) else body.decode()
            rows = text.splitlines()
            time.sleep(len(rows) / 4000)
            sums = [sum(int(cell) for cell in row.split(",")) for row in rows]
            return "".join(f"{one}\n" for one in sums), accept
    """
    return python_model(folder, code)


def write_input(folder: Path, records: int) -> None:
    """A large object that is cut, small ones that are not; each record has its number in it."""
    folder.mkdir()
    sizes = [records // 4]
    while left := records - sum(sizes):
        sizes.append(min(left, OBJECT_RECORDS + 100 * (len(sizes) % 7)))
    number = 0
    for at, size in enumerate(sizes):
        with (folder / f"part-{at:03d}.csv").open("w") as file:
            for _ in range(size):
                cells = (number % 10_000, number // 10_000, number % 97, number % 7)
                line = ",".join(f"{cell:031d}" for cell in cells)
                file.write(line.ljust(RECORD_BYTES - 1)[: RECORD_BYTES - 1] + "\n")
                number += 1


class KilledSite(TransformSite):
    """Which processes a job runs on, and what it is writing."""

    def instances(self) -> list[int]:
        return instances_of(self.server.pid)

    def workers(self) -> list[int]:
        """Processes that run the models' own code."""
        return [pid for instance in self.instances() for pid in children_of(instance)]

    def drafts(self, job: str) -> list[Path]:
        """Outputs of spans, and of objects, that are being written."""
        parts = self.server.state_dir / "jobs" / job
        return [*parts.glob(".draft-*"), *(self.folder / "out" / job).glob(".*.new")]


class JobNemesis:
    """Kills what a job runs on, as its seed says."""

    def __init__(
        self,
        site: KilledSite,
        job: str,
        seed: int,
        kinds: dict[str, int],
        *,
        kills: int,
        records: int,
    ) -> None:
        """`kinds`: of kills, with their weights; `kills`, over so many `records`."""
        self._site = site
        self._job = job
        self._rng = random.Random(seed)
        self._records = 0
        self._kinds = kinds
        self._records_each = records / kills
        self.killed = dict.fromkeys(kinds, 0)

    def strike(self) -> bool:
        """One kill; False where the job has ended before."""
        kind = self._rng.choices(list(self._kinds), list(self._kinds.values()))[0]
        # Some come while nothing has got anywhere yet, and so do those that are late: else the job
        # would be over before the last.
        late = self._records > (sum(self.killed.values()) + 1) * self._records_each
        early = self._rng.random() < 0.2 or late
        pause_s = self._rng.uniform(0.0, 0.6)
        if not early and not self._wait(self._went_on, 60):
            return False
        time.sleep(pause_s)  # the moment is the seed's
        if kind == HALF_WRITTEN:
            self._wait(lambda: bool(self._site.drafts(self._job)), 2)
        if self._over():
            return False
        self._kill(kind)
        self.killed[kind] += 1
        print(f"{kind} killed after {pause_s:.2f} s, {self._records} records", flush=True)
        return True

    def _kill(self, kind: str) -> None:
        if kind != SERVER:
            for pid in self._site.workers() if kind == WORKER else self._site.instances():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if kind in (SERVER, HALF_WRITTEN):
            self._site.server.kill()
            self._site.server.start()

    def _went_on(self) -> bool:
        """More records are read than at the last look."""
        progress = self._site.describe(self._job)["PenstockProgress"]
        before, self._records = self._records, progress["Records"]
        return bool(self._records > before)

    def _over(self) -> bool:
        return self._site.describe(self._job)["TransformJobStatus"] != "InProgress"

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """False if the job has ended, or time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._over():
                return False
            if condition():
                return True
            time.sleep(0.02)
        return not self._over()


def disturbed(
    folder: Path, *, kind: str = NATIVE, kills: int, records: int, seed: int
) -> dict[str, Any]:
    """Runs the job undisturbed, then with kills; what was seen."""
    print(f"seed {seed}: {kills} kills, {records} records, model {kind}", flush=True)
    model = slow_model(folder / "model") if kind == NATIVE else own_code(folder / "model")
    weights = {SERVER: 3, INSTANCE: 5, HALF_WRITTEN: 2} | ({WORKER: 5} if kind == OWN_CODE else {})
    write_input(folder / "in", records)
    with up(folder) as server:
        site = KilledSite(server, folder)
        site.model("slow", model)
        begun = time.monotonic()
        site.begin("alone", "slow", site.uri("in"), MaxPayloadInMB=1)
        alone = site.ended("alone", seconds=1200)
        assert alone["TransformJobStatus"] == "Completed", alone
        alone_s = time.monotonic() - begun
        print(f"alone: {alone_s:.1f} s", flush=True)
        begun = time.monotonic()
        site.begin("killed", "slow", site.uri("in"), MaxPayloadInMB=1)
        nemesis = JobNemesis(site, "killed", seed, weights, kills=kills, records=records)
        while sum(nemesis.killed.values()) < kills and nemesis.strike():
            pass
        killed = site.ended("killed", seconds=1200)
        assert killed["TransformJobStatus"] == "Completed", killed
        assert killed["PenstockProgress"]["Records"] == records
        assert killed["PenstockProgress"]["RefusedRecords"] == 0
        expected, found = site.outputs("alone"), site.outputs("killed")
        assert sorted(found) == [f"{path.name}.out" for path in sorted((folder / "in").iterdir())]
        assert sum(one.count("\n") for one in found.values()) == records
        assert found == expected  # byte for byte
        assert not any((folder / "state" / "jobs").iterdir()), "parts of ended jobs are left"
        return {
            "seed": seed,
            "model": kind,
            "records": records,
            "spans": killed["PenstockProgress"]["Spans"],
            "kills": nemesis.killed,
            "alone_s": round(alone_s, 1),
            "killed_s": round(time.monotonic() - begun, 1),
        }


@pytest.mark.parametrize("kind", [NATIVE, OWN_CODE])
def test_kills_at_random_moments_neither_lose_nor_double_a_record(
    tmp_path: Path, kind: str
) -> None:
    print(disturbed(tmp_path, kind=kind, kills=KILLS, records=RECORDS, seed=SEED))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        wanted = [int(one) for one in sys.argv[2:5]]
        print(json.dumps(disturbed(
            Path(place), kind=sys.argv[1], kills=wanted[0], records=wanted[1], seed=wanted[2],
        )))  # fmt: skip
