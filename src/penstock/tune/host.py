"""The cost of a request besides the model: gateway, the instance's loop, and making the load.

It is measured on a real server under a short load, as processor time of each process's main thread
(the event loops run there) and of this process, which makes the load; the model's lanes are other
threads. By conservation of work it is added to the twin's run times: lanes that would use all cores
give up what the loops need of them, and no loop takes more than one core.

On other machines the load comes from outside. It is charged here because the live verification
makes it here: predicted and live rates must describe the same machine.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ModelError
from penstock.runtimes.workers.memory import tree_pids
from penstock.sim.workload import ServiceSpec
from penstock.tune.live import LiveServer
from penstock.tune.search import Setting

_ROUNDS = 3
_ROUND_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCost:
    """Processor time per request, s."""

    loops_s: tuple[float, ...]  #: one value for each process of the server that used processor time
    load_s: float  #: cost of making the load

    @property
    def request_s(self) -> float:
        return sum(self.loops_s) + self.load_s

    @property
    def narrowest_s(self) -> float:
        """Time of the busiest loop, which is the first to be full."""
        return max((*self.loops_s, self.load_s))

    def told(self) -> str:
        loops = " + ".join(f"{each * 1e6:.0f}" for each in self.loops_s)
        return f"{loops} us in the server's loops, {self.load_s * 1e6:.0f} us in the load"

    def charged(self, service: ServiceSpec, *, lanes: int, threads: int, cores: int) -> ServiceSpec:
        """The run times on `cores` cores that the lanes share with the loops."""
        return dataclasses.replace(
            service,
            measured=tuple(
                (rows, bucket, self._run_s(rows, run_s, lanes, threads, cores))
                for rows, bucket, run_s in service.measured
            ),
        )

    def _run_s(self, rows: int, run_s: float, lanes: int, threads: int, cores: int) -> float:
        """Work of `lanes` batches and their requests, spread over all cores; per batch and lane.

        A batch is never faster than its run, and never faster than its requests pass the narrowest
        loop.
        """
        work_s = lanes * (run_s * threads + rows * self.request_s)
        return max(run_s, work_s / cores, lanes * rows * self.narrowest_s)


def measure_host(server: LiveServer, setting: Setting, rate_rps: float) -> HostCost:
    """Medians of a few short loads on the first endpoint. Raises ModelError if nothing answers."""
    server.run(0, setting, rate_rps, _ROUND_S)  # warms it up
    loops: list[dict[int, float]] = []
    loads: list[float] = []
    for _ in range(_ROUNDS):
        pids = tree_pids(server.pid)
        before = {pid: _main_thread_s(pid) for pid in pids}
        load_before = time.process_time()
        point = server.run(0, setting, rate_rps, _ROUND_S)
        answered = round(point.answered_rps * _ROUND_S)
        if answered < 1:
            continue
        loads.append((time.process_time() - load_before) / answered)
        loops.append({pid: (_main_thread_s(pid) - before[pid]) / answered for pid in pids})
    if not loads:
        raise ModelError(
            "tune-live-failed",
            "the server answered nothing while the host's own cost was measured",
            hint="See whether it answers at all: penstock up --deploy NAME=DIR.",
        )
    by_process = [statistics.median(each.get(pid, 0.0) for each in loops) for pid in loops[0]]
    return HostCost(
        loops_s=tuple(sorted((each for each in by_process if each > 0.0), reverse=True)),
        load_s=statistics.median(loads),
    )


def _main_thread_s(pid: int) -> float:
    """Processor time of the main thread, exact to the nanosecond; 0 for a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
