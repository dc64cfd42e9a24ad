"""Closed-loop HTTP load by wrk: as many requests as are answered over N kept-alive connections.

wrk is written in C, so that the generator takes as little of the shared cores as can be had.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.processes import JSON_HEADERS

#: As long as a server gives a request. On a slow machine a full queue of a large model takes many
#: seconds, and an answer that the load had no patience for would count as a failure.
PATIENCE_S = 60

_SCRIPT = """
wrk.method = "POST"
{headers}
{bodies}
function done(summary, latency, requests)
  local bad = summary.errors.connect + summary.errors.read + summary.errors.write
    + summary.errors.status + summary.errors.timeout
  io.write(string.format("figures %.3f %.1f %.1f %d %d\\n",
    summary.requests / (summary.duration / 1e6),
    latency:percentile(50), latency:percentile(99), summary.requests, bad))
end
"""

#: Several bodies take turns. One alone is left to wrk, which then calls no Lua per request.
_TURNS = """
local bodies = {{ {literals} }}
local ready, turn = {{}}, 0
function init(arguments)
  for at, body in ipairs(bodies) do ready[at] = wrk.format(nil, nil, nil, body) end
end
function request()
  turn = turn % #ready + 1
  return ready[turn]
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What one run saw."""

    rps: float
    p50_ms: float
    p99_ms: float
    requests: int
    failed: int  #: connection errors and answers that are not 2xx or 3xx


class NothingAnswered(RuntimeError):
    """Not one answer came in the time of a run."""


def require_wrk() -> str:
    """Path of wrk; installs Debian's package when run as root, else says how."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "wrk"], check=False, capture_output=True)
    found = shutil.which("wrk")
    if found is None:
        raise SystemExit(
            "error[wrk-missing]: the load generator wrk is not installed\nhint: apt-get install wrk"
        )
    return found


def _as_clients_elsewhere() -> list[str]:
    """They would take no core from a lane that computes, each time that they wake."""
    chrt = shutil.which("chrt")
    return [chrt, "--batch", "0"] if chrt else []


def closed_loop(
    url: str,
    *bodies: bytes,
    connections: int,
    seconds: float,
    threads: int = 1,
    headers: Mapping[str, str] = JSON_HEADERS,
) -> Load:
    """POSTs `bodies` in turn, over and over for `seconds` (wrk takes whole ones, at least one);
    raises NothingAnswered."""
    literals = ['"' + "".join(f"\\{byte:03d}" for byte in body) + '"' for body in bodies]
    named = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items())
    sent = f"wrk.body = {literals[0]}"
    if len(bodies) > 1:
        sent = _TURNS.format(literals=", ".join(literals))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "post.lua")
        script.write_text(_SCRIPT.format(bodies=sent, headers=named))
        run = subprocess.run(
            [
                *_as_clients_elsewhere(),
                require_wrk(),
                *("-t", str(threads), "-c", str(connections), "-d", f"{max(1, round(seconds))}s"),
                *("--timeout", f"{PATIENCE_S}s", "-s", str(script), url),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"^figures (\S+) (\S+) (\S+) (\d+) (\d+)$", run.stdout, re.MULTILINE)
    if found is None or float(found[1]) == 0:
        raise NothingAnswered(f"wrk measured nothing at {url}:\n{run.stdout}{run.stderr}")
    rps, p50_us, p99_us, requests, failed = (float(value) for value in found.groups())
    return Load(rps, p50_us / 1e3, p99_us / 1e3, int(requests), int(failed))
