"""What a byte of hostile input costs, for every parser that a stranger reaches.

Each shape of `hostile_inputs.py` is grown from a sixteenth of what the server reads to all of it.
The columns: nanoseconds a byte at full size, the slope of time against size on logarithmic axes (1
is linear, 2 quadratic), how long one step of it keeps its thread, and the memory that it allocates
at most, for each byte. What runs on the gateway's loop must not keep it for 50 ms; what runs beside
it (`thread`), in an instance or when a model is loaded is shown as it is.

Times are those of the thread, and the best of several repetitions counts: other programs can make
a call slower, never faster.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import time
import tracemalloc
from dataclasses import asdict, dataclass

from bench.hostile_inputs import LOOP, Attack, attacks
from bench.report import finish, versions

GROWTH = 16
#: Below this a slope would be that of the clock.
NOISE_S = 0.000_2
STALL_MS_MAX = 50.0
TRACED_BYTES_MAX = 1 << 20
SLOPE_MAX = 1.5


@dataclass(frozen=True, slots=True)
class Cost:
    parser: str
    shape: str
    where: str
    input_bytes: int
    ns_per_byte: float
    slope: float | None  #: None where it took no time worth measuring
    step_ms: float
    peak_bytes_per_byte: float


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench cost_per_byte")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--only", default="", help="parsers whose name contains this")
    options = parser.parse_args(arguments)
    print(f"{'parser':16} {'shape':22} {'runs':9} {'bytes':>9} {'ns/byte':>8} {'slope':>6}"
          f" {'step ms':>8} {'peak/byte':>9}")  # fmt: skip
    costs = asyncio.run(measured(options.repetitions, options.only))
    on_loop = [cost for cost in costs if cost.where == LOOP]
    slopes = [cost.slope for cost in costs if cost.slope is not None]
    finish(
        "cost_per_byte",
        {
            "parsers": len({cost.parser for cost in costs}),
            "shapes": len(costs),
            "slope_max": max(slopes, default=None),
            "superlinear": [f"{cost.parser}: {cost.shape}" for cost in costs
                            if (cost.slope or 0) > SLOPE_MAX],
            "loop_step_ms_max": max((cost.step_ms for cost in on_loop), default=0.0),
            "loop_stalls": [f"{cost.parser}: {cost.shape}" for cost in on_loop
                            if cost.step_ms > STALL_MS_MAX],
            "ns_per_byte_max": max(cost.ns_per_byte for cost in costs),
            "peak_bytes_per_byte_max": max(cost.peak_bytes_per_byte for cost in costs),
        },
        versions=versions("orjson", "httptools", "protobuf", "numpy", "pyyaml"),
        repetitions=options.repetitions,
        costs=[asdict(cost) for cost in costs],
    )  # fmt: skip


def _show(cost: Cost) -> None:
    slope = f"{cost.slope:6.2f}" if cost.slope is not None else "     -"
    print(f"{cost.parser:16} {cost.shape:22} {cost.where:9} {cost.input_bytes:9d} "
          f"{cost.ns_per_byte:8.1f} {slope} {cost.step_ms:8.2f} "
          f"{cost.peak_bytes_per_byte:9.1f}", flush=True)  # fmt: skip


async def measured(repetitions: int, only: str = "") -> list[Cost]:
    """On an event loop, as some parsers are told to go on by it."""
    found = []
    shapes = list(attacks())
    gc.collect()
    gc.freeze()  # as the server does: what lives for ever is not walked by each collection
    for attack in shapes:
        if only.lower() in attack.name.lower():
            found.append(cost_of(attack, repetitions))
            _show(found[-1])
            await asyncio.sleep(0)
    return found


def cost_of(attack: Attack, repetitions: int) -> Cost:
    small, large = attack.make(attack.bytes_max // GROWTH), attack.make(attack.bytes_max)
    small_s, _ = best_s(attack, small, repetitions)
    large_s, step_s = best_s(attack, large, repetitions)
    growth = len(large) / len(small)
    traced = large if len(large) <= TRACED_BYTES_MAX else small  # tracing makes a call much slower
    slope = math.log(large_s / small_s) / math.log(growth) if growth > 2 else None
    return Cost(
        parser=attack.parser,
        shape=attack.shape,
        where=attack.where,
        input_bytes=len(large),
        ns_per_byte=round(large_s / len(large) * 1e9, 1),
        slope=round(slope, 2) if slope is not None and small_s > NOISE_S else None,
        step_ms=round(step_s * 1e3, 3),
        peak_bytes_per_byte=round(peak_bytes(attack, traced) / len(traced), 1),
    )


def best_s(attack: Attack, data: bytes, repetitions: int) -> tuple[float, float]:
    """Of several calls the shortest, and the longest step of the one that had the shortest such."""
    best_call = best_step = math.inf
    for _ in range(repetitions):
        gc.collect()
        call_s, step_s = _timed(attack, data)
        best_call, best_step = min(best_call, call_s), min(best_step, step_s)
    return best_call, best_step


def _timed(attack: Attack, data: bytes) -> tuple[float, float]:
    """Time of this thread, in s: what other programs take does not count."""
    began = at = time.thread_time()
    longest = 0.0
    for _ in attack.run(data) or ():
        now = time.thread_time()
        longest, at = max(longest, now - at), now
    end = time.thread_time()
    return end - began, max(longest, end - at)


def peak_bytes(attack: Attack, data: bytes) -> int:
    """What Python's allocators held at most during one call."""
    gc.collect()
    tracemalloc.start()
    try:
        for _ in attack.run(data) or ():
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
