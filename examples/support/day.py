"""A day of support traffic on two multi-model endpoints, live and in little time.

    python examples/support/day.py --url http://127.0.0.1:8080 --minutes 2

Calls leave when they are due, whether or not earlier ones were answered, up to `--connections` at
once; latency counts from the moment a call was due. The first call of each model has its time of
its own: if the endpoints are fresh, it is the cold start. At the end five calls at once are made on
a model that is loaded. Needs the standard library alone. Prints tables, and last one JSON object.
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
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from customers import customers
from traffic import AUTOCOMPLETE, EMBEDDINGS, LENGTHS, Call, compressed, day

TIMEOUT_S = 60.0
WORDS = Path(__file__).resolve().with_name("words.txt").read_text(encoding="utf-8").split()
AT_ONCE = 5


@dataclass(slots=True)
class Answers:
    """What was measured; filled by all connections."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    called: set[tuple[str, str]] = field(default_factory=set)  #: (kind, model)
    first_s: list[tuple[int, float]] = field(default_factory=list)  #: (tokens, latency)
    other_s: list[tuple[int, float]] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)  #: what was said -> how often

    def is_first(self, call: Call) -> bool:
        """Whether nobody has called this model before."""
        with self.lock:
            before = len(self.called)
            self.called.add((call.kind, call.target_model))
            return len(self.called) > before

    def add(self, call: Call, spent_s: float, said: str, *, first: bool) -> None:
        with self.lock:
            if said:
                self.failures[said] = self.failures.get(said, 0) + 1
            else:
                (self.first_s if first else self.other_s).append((call.tokens, spent_s))


class Caller(threading.Thread):
    """One connection."""

    def __init__(
        self, url: str, endpoints: dict[str, str], work: queue.Queue[tuple[Call, float] | None],
        answers: Answers,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._url = urlsplit(url)
        self._endpoints = endpoints
        self._work = work
        self._answers = answers

    def run(self) -> None:
        connection = http.client.HTTPConnection(
            self._url.hostname or "", self._url.port, timeout=TIMEOUT_S
        )
        while (asked := self._work.get()) is not None:
            call, due = asked
            first = self._answers.is_first(call)
            said = self._call(connection, call)
            self._answers.add(call, time.monotonic() - due, said, first=first)

    def _call(self, connection: http.client.HTTPConnection, call: Call) -> str:
        """What went wrong; empty: nothing."""
        body = json.dumps({"inputs": [text_of(call)]})
        headers = {
            "Content-Type": "application/json",
            "X-Amzn-SageMaker-Target-Model": call.target_model,
        }
        path = f"/endpoints/{self._endpoints[call.kind]}/invocations"
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except OSError as error:
            connection.close()
            return f"{type(error).__name__}: {error}"
        return (
            ""
            if answer.status == 200
            else f"{answer.status} {content[:200].decode(errors='replace')}"
        )


def text_of(call: Call) -> str:
    """As many words as the call has tokens, the same for the same call."""
    rng = random.Random(f"{call.customer} {call.at_s}")
    return " ".join(rng.choices(WORDS, k=call.tokens))


def spent(answers: list[tuple[int, float]], tokens: int) -> str:
    """Median latency of the calls of about this length, in ms."""
    near = [s for n, s in answers if 0.65 * tokens <= n <= tokens]
    return f"{statistics.median(near) * 1000:10.1f} ms" if near else f"{'-':>13}"


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def play(given: argparse.Namespace, answers: Answers) -> float:
    """The whole day; returns the seconds that it took."""
    people = customers(given.customers)
    calls = day(people, calls=given.calls, seed=given.seed, autocomplete=given.autocomplete)
    work: queue.Queue[tuple[Call, float] | None] = queue.Queue()
    callers = callers_of(given, work, answers, given.connections)
    begun = time.monotonic()
    for after_s, call in compressed(calls, 1440.0 / given.minutes):
        due = begun + after_s
        time.sleep(max(0.0, due - time.monotonic()))
        work.put((call, due))
    finish(callers, work)
    return time.monotonic() - begun


def five_at_once(given: argparse.Namespace, call: Call, tokens: int) -> Answers:
    """Five calls together on one model, which the day has loaded."""
    answers = Answers(called={(call.kind, call.target_model)})
    for _ in range(given.rounds):
        work: queue.Queue[tuple[Call, float] | None] = queue.Queue()
        callers = callers_of(given, work, answers, AT_ONCE)
        now = time.monotonic()
        for at in range(AT_ONCE):
            work.put((Call(call.at_s + at, call.customer, call.kind, tokens), now))
        finish(callers, work)
    return answers


def callers_of(
    given: argparse.Namespace, work: queue.Queue[tuple[Call, float] | None], answers: Answers,
    count: int,
) -> list[Caller]:  # fmt: skip
    endpoints = {EMBEDDINGS: given.embeddings_endpoint, AUTOCOMPLETE: given.autocomplete_endpoint}
    callers = [Caller(given.url, endpoints, work, answers) for _ in range(count)]
    for caller in callers:
        caller.start()
    return callers


def finish(callers: list[Caller], work: queue.Queue[tuple[Call, float] | None]) -> None:
    for _ in callers:
        work.put(None)
    for caller in callers:
        caller.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--embeddings-endpoint", default="support-embeddings")
    parser.add_argument("--autocomplete-endpoint", default="support-autocomplete")
    parser.add_argument("--customers", type=int, default=200)
    parser.add_argument("--autocomplete", type=int, default=40)
    parser.add_argument("--calls", type=float, default=5_000, help="in the whole day")
    parser.add_argument("--minutes", type=float, default=2.0, help="that the day takes here")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="of five calls at once")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    answers = Answers()
    took_s = play(given, answers)
    if not answers.other_s:
        sys.exit(f"no call was answered: {answers.failures}")
    largest = max(customers(given.customers), key=lambda each: each.share)
    known = Call(0.0, largest.key, EMBEDDINGS, 30)
    print("tokens      first call         loaded      5 at once")
    for tokens, _ in LENGTHS:
        together = five_at_once(given, known, tokens)
        cold, warm = spent(answers.first_s, tokens), spent(answers.other_s, tokens)
        print(f"{tokens:6}  {cold}  {warm}  {spent(together.other_s, tokens)}")
    every = [s for _, s in answers.first_s + answers.other_s]
    figures = {
        "calls": len(every) + sum(answers.failures.values()),
        "failures": answers.failures,
        "models_called": len(answers.called),
        "seconds": round(took_s, 1),
        "latency_ms_p50": round(percentile(every, 0.5) * 1000, 1),
        "latency_ms_p99": round(percentile(every, 0.99) * 1000, 1),
        "first_call_ms_p50": round(percentile([s for _, s in answers.first_s], 0.5) * 1000, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
