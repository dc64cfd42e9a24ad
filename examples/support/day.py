"""A day of support traffic on two multi-model endpoints, live and in little time.

    python examples/support/day.py --url http://127.0.0.1:8080 --minutes 2

Calls leave when they are due, whether or not earlier ones were answered, up to `--connections` at
once; one that is due when none is free leaves late, and the table says how late. The first call of
each model has its time of its own: if the endpoints are fresh, it is a cold start. Needs the
standard library alone. Prints a line for each hour, and last one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence

from calls import Answer, Answers, Callers
from customers import customers
from traffic import AUTOCOMPLETE, EMBEDDINGS, compressed, day


def play(given: argparse.Namespace, answers: Answers) -> float:
    """The whole day; returns the seconds that it took."""
    people = customers(given.customers)
    calls = day(people, calls=given.calls, seed=given.seed, autocomplete=given.autocomplete)
    callers = Callers(given.url, endpoints_of(given), answers, given.connections)
    begun = time.monotonic()
    for after_s, call in compressed(calls, 1440.0 / given.minutes):
        due = begun + after_s
        time.sleep(max(0.0, due - time.monotonic()))
        callers.put(call, due)
    callers.finish()
    return time.monotonic() - begun


def by_hour(answers: Sequence[Answer]) -> list[str]:
    """A table: how much was asked, of how many models, and how long it took."""
    lines = ["hour (UTC)  calls  models  first calls    P50 ms    P99 ms  late by s"]
    for hour in range(24):
        found = [one for one in answers if int(one.call.at_s // 3600) % 24 == hour]
        if not found:
            continue
        models = len({(one.call.kind, one.call.customer) for one in found})
        first = sum(one.first for one in found)
        times = [one.spent_s * 1000.0 for one in found]
        half, most = percentile(times, 0.5), percentile(times, 0.99)
        late = percentile([one.late_s for one in found], 0.5)
        counts = f"{hour:10}  {len(found):5}  {models:6}  {first:11}"
        lines.append(f"{counts}  {half:8.1f}  {most:8.1f}  {late:9.2f}")
    return lines


def figures_of(answers: Answers, took_s: float) -> dict[str, object]:
    """JSON-ready."""
    good = answers.good()
    every = [answer.spent_s * 1000.0 for answer in good]
    first = [answer.spent_s * 1000.0 for answer in good if answer.first]
    return {
        "calls": len(answers.every),
        "failures": answers.failures(),
        "models_called": answers.models_called,
        "seconds": round(took_s, 1),
        "latency_ms_p50": round(percentile(every, 0.5), 1),
        "latency_ms_p99": round(percentile(every, 0.99), 1),
        "late_s_p50": round(percentile([answer.late_s for answer in good], 0.5), 2),
        "first_call_ms_p50": round(statistics.median(first), 1) if first else None,
    }


def percentile(values: Sequence[float], share: float) -> float:
    """By the nearest rank above; of nothing it is not a number."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def endpoints_of(given: argparse.Namespace) -> dict[str, str]:
    return {EMBEDDINGS: given.embeddings_endpoint, AUTOCOMPLETE: given.autocomplete_endpoint}


def options() -> argparse.ArgumentParser:
    """What says which day is played, and where."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--embeddings-endpoint", default="support-embeddings")
    parser.add_argument("--autocomplete-endpoint", default="support-autocomplete")
    parser.add_argument("--customers", type=int, default=200)
    parser.add_argument("--autocomplete", type=int, default=40, help="customers who have one")
    parser.add_argument("--calls", type=float, default=5_000, help="in the whole day")
    parser.add_argument("--minutes", type=float, default=2.0, help="that the day takes here")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], parents=[options()])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    given = parser.parse_args()
    answers = Answers()
    took_s = play(given, answers)
    if not answers.good():
        sys.exit(f"no call was answered: {answers.failures()}")
    print("\n".join(by_hour(answers.good())))
    print(json.dumps(figures_of(answers, took_s)))


if __name__ == "__main__":
    main()
