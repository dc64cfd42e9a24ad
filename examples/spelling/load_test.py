"""Load on the endpoint `spelling`: how many queries a second, and how long a correction takes.

    python examples/spelling/load_test.py --url http://127.0.0.1:8080 --connections 8

A closed loop: each kept-alive connection sends its next query when the last one is answered. With
`--rate` the queries leave at that many a second instead, at random times, whether or not earlier
ones were answered; latency then counts from the moment a query was due. The queries are those of
`handwritten.tsv`. Needs the standard library alone. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import http.client
import json
import queue
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
HEADERS = {"Content-Type": "application/json"}


class Caller(threading.Thread):
    """One connection; asks whatever comes out of `work`: (body, when it was due)."""

    def __init__(self, url: str, work: queue.SimpleQueue[tuple[bytes, float] | None]) -> None:
        super().__init__(daemon=True)
        self.spent_s: list[tuple[float, float]] = []  #: (due, from there to the answer)
        self.failed = 0
        self.reason = ""
        self._url = urlsplit(url)
        self._work = work

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port)
        while (asked := self._work.get()) is not None:
            body, due = asked
            try:
                connection.request("POST", self._url.path, body, HEADERS)
                answer = connection.getresponse()
                content = answer.read()
            except OSError as error:
                self.failed, self.reason = self.failed + 1, str(error)
                connection.close()
                continue
            if answer.status != 200:
                self.failed, self.reason = self.failed + 1, content.decode(errors="replace")
            else:
                self.spent_s.append((due, time.monotonic() - due))


class Endless:
    """Work for the closed loop: the next query at once, until the time is over."""

    def __init__(self, bodies: list[bytes], end: float) -> None:
        self._bodies, self._end = bodies, end
        self._rng = random.Random(0)
        self._lock = threading.Lock()

    def get(self) -> tuple[bytes, float] | None:
        now = time.monotonic()
        with self._lock:
            return (self._rng.choice(self._bodies), now) if now < self._end else None


def queries() -> list[tuple[str, str]]:
    """(typed, meant)"""
    lines = (HERE / "handwritten.tsv").read_text(encoding="utf-8").splitlines()
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines if line]


def corrected(url: str, texts: list[str]) -> list[str]:
    """All of them in one request; ends the program if the endpoint does not answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request("POST", parts.path, json.dumps({"inputs": texts}).encode(), HEADERS)
        answer = connection.getresponse()
        content = answer.read()
    except OSError as error:
        sys.exit(f"{url}: {error}")
    if answer.status != 200:
        sys.exit(f"{url}: {answer.status} {content.decode(errors='replace')}")
    return [each["generated_text"] for each in json.loads(content)]


def send_at_random(
    work: queue.SimpleQueue[tuple[bytes, float] | None],
    bodies: list[bytes],
    rate: float,
    end: float,
) -> None:
    """Poisson arrivals."""
    rng = random.Random(0)
    due = time.monotonic()
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        work.put((rng.choice(bodies), due))
        due += rng.expovariate(rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--endpoint", default="spelling")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.0, help="queries a second; 0: closed loop")
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    url = f"{arguments.url}/endpoints/{arguments.endpoint}/invocations"
    pairs = queries()
    answers = corrected(url, [typed for typed, _ in pairs])
    exact = sum(answer == meant for answer, (_, meant) in zip(answers, pairs, strict=True))
    bodies = [json.dumps({"inputs": typed}).encode() for typed, _ in pairs]
    begin = time.monotonic() + 1.0  # warm-up
    end = begin + arguments.seconds
    work: queue.SimpleQueue[tuple[bytes, float] | None] = queue.SimpleQueue()
    source = work if arguments.rate else Endless(bodies, end)
    callers = [Caller(url, source) for _ in range(arguments.connections)]  # type: ignore[arg-type]
    for caller in callers:
        caller.start()
    if arguments.rate:
        send_at_random(work, bodies, arguments.rate, end)
        for _ in callers:
            work.put(None)
    for caller in callers:
        caller.join()
    report(callers, begin, exact, len(pairs), arguments)


def report(
    callers: list[Caller], begin: float, exact: int, asked: int, arguments: argparse.Namespace
) -> None:
    spent = sorted(s for caller in callers for due, s in caller.spent_s if due >= begin)
    failed = sum(caller.failed for caller in callers)
    if failed:
        print(f"failed: {next(c.reason for c in callers if c.failed)[:300]}", file=sys.stderr)
    if len(spent) < 100:
        sys.exit(f"only {len(spent)} answers in {arguments.seconds:g} s")
    cuts = statistics.quantiles(spent, n=100)
    print(
        json.dumps(
            {
                "queries_per_s": round(len(spent) / arguments.seconds, 1),
                "latency_ms_p50": round(cuts[49] * 1000, 2),
                "latency_ms_p99": round(cuts[98] * 1000, 2),
                "handwritten_exact": f"{exact} of {asked}",
                "failed": failed,
                "connections": arguments.connections,
                "rate": arguments.rate or "closed loop",
            }
        )
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
