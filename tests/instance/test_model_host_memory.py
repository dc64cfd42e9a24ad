"""How a host follows what it takes between two whole looks; in a process of its own, whose memory
and children are nobody else's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

MIB = 2**20
MODEL_BYTES = 64 * MIB

#: What is told of each look: bytes, and how many whole looks there were before.
HOST = f"""
import asyncio, json, subprocess, sys
from penstock.instance.models import memory

meter, looks, look = memory.Meter(), [], memory.footprint

def counted():
    looks.append(look())
    return looks[-1]

memory.footprint = counted

async def told(work):
    seen = await work
    return [seen.host_bytes, len(looks)]

async def play():
    seen = {{"first": await told(meter.rested({{}}))}}
    model = bytearray(b"x" * {MODEL_BYTES})
    seen["loaded"] = await told(meter.rested({{}}))
    del model
    seen["gone"] = await told(meter.given_back())
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    seen["with another"] = await told(meter.rested({{}}))
    seen["with it still"] = await told(meter.rested({{}}))
    other.communicate()
    seen["without it"] = await told(meter.rested({{}}))
    print(json.dumps(seen))

asyncio.run(play())
"""


def looked_at() -> dict[str, Any]:
    played = subprocess.run([sys.executable, "-c", HOST], capture_output=True, check=True)
    seen: dict[str, Any] = json.loads(played.stdout)
    return seen


def test_what_comes_and_goes_is_followed_without_a_whole_look() -> None:
    seen = looked_at()
    first, loaded, gone = (seen[name] for name in ("first", "loaded", "gone"))
    assert [first[1], loaded[1], gone[1]] == [1, 1, 1], "one, before anything was known"
    assert abs(loaded[0] - first[0] - MODEL_BYTES) < 8 * MIB
    assert abs(gone[0] - first[0]) < 8 * MIB


def test_where_processes_come_or_go_each_is_looked_at_again() -> None:
    """What they share with others counts in full where pages are not divided."""
    seen = looked_at()
    names = ("with another", "with it still", "without it")
    assert [seen[name][1] for name in names] == [2, 2, 3]
