"""Load on the endpoint `duplicates`: how many pairs a second, and how long an answer takes.

    python examples/duplicates/load_test.py --url http://127.0.0.1:8080 --connections 16

A closed loop: each kept-alive connection sends its next request when the last one is answered.
Needs the standard library alone. `--rows` pairs go into one request, as a batch job would send
them; `--heads` asks for some heads. Prints one JSON object; the first answers are checked.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent


class Caller(threading.Thread):
    """One connection. `spent_s` holds the time of every answer after the warm-up."""

    def __init__(self, url: str, bodies: list[bytes], begin: float, end: float) -> None:
        super().__init__(daemon=True)
        self.spent_s: list[float] = []
        self.failed = 0
        self.reason = ""
        self._url = urlsplit(url)
        self._bodies = bodies
        self._begin, self._end = begin, end

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port)
        headers = {"Content-Type": "application/json"}
        at = 0
        while (sent := time.monotonic()) < self._end:
            try:
                connection.request("POST", self._url.path, self._bodies[at], headers)
                answer = connection.getresponse()
                content = answer.read()
            except OSError as error:
                self.failed, self.reason = self.failed + 1, str(error)
                connection.close()
                time.sleep(0.05)
                continue
            now = time.monotonic()
            if answer.status != 200:
                self.failed, self.reason = self.failed + 1, content.decode(errors="replace")
            elif sent >= self._begin:
                self.spent_s.append(now - sent)
            at = (at + 1) % len(self._bodies)


def bodies(rows: int, heads: list[str]) -> list[bytes]:
    """Requests of `rows` pairs each, of the pairs written by hand."""
    lines = (HERE / "handwritten.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [dict(zip(("text", "text_pair"), line.split("\t")[:2], strict=True)) for line in lines]
    parameters = {"heads": heads} if heads else {}
    requests = []
    for start in range(len(pairs)):
        inputs = [pairs[(start + at) % len(pairs)] for at in range(rows)]
        requests.append(json.dumps({"inputs": inputs, "parameters": parameters}).encode())
    return requests


def check(url: str, body: bytes, rows: int, heads: list[str]) -> None:
    """Ends the program unless the endpoint answers every pair with the heads asked for."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request("POST", parts.path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    except OSError as error:
        sys.exit(f"{url}: {error}")
    if answer.status != 200:
        sys.exit(f"{url}: {answer.status} {content.decode(errors='replace')}")
    answers = json.loads(content)
    if len(answers) != rows or (heads and set(answers[0]) != set(heads)):
        sys.exit(f"{url}: unexpected answer {content[:200]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--endpoint", default="duplicates")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rows", type=int, default=1, help="pairs in one request")
    parser.add_argument("--heads", nargs="*", default=[], help="all when left out")
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    url = f"{arguments.url}/endpoints/{arguments.endpoint}/invocations"
    requests = bodies(arguments.rows, arguments.heads)
    check(url, requests[0], arguments.rows, arguments.heads)
    begin = time.monotonic() + 1.0  # warm-up
    end = begin + arguments.seconds
    callers = []
    for at in range(arguments.connections):
        turned = requests[at % len(requests) :] + requests[: at % len(requests)]
        callers.append(Caller(url, turned, begin, end))
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    spent = sorted(each for caller in callers for each in caller.spent_s)
    failed = sum(caller.failed for caller in callers)
    if failed:
        print(f"failed: {next(c.reason for c in callers if c.failed)[:300]}", file=sys.stderr)
    if len(spent) < 100:
        sys.exit(f"only {len(spent)} answers in {arguments.seconds:g} s")
    cuts = statistics.quantiles(spent, n=100)
    print(
        json.dumps(
            {
                "pairs_per_s": round(len(spent) * arguments.rows / arguments.seconds, 1),
                "requests_per_s": round(len(spent) / arguments.seconds, 1),
                "latency_ms_p50": round(cuts[49] * 1000, 2),
                "latency_ms_p99": round(cuts[98] * 1000, 2),
                "failed": failed,
                "connections": arguments.connections,
                "rows": arguments.rows,
                "heads": arguments.heads or "all",
            }
        )
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
