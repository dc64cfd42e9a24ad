"""Latency by the length of the text: cold, loaded, and five at once, of both kinds of models.

    python examples/support/latency.py --url http://127.0.0.1:8080

A cold call is one of a model that was just unloaded: it is fetched from the cache and loaded. Then
the same model is called again, one call after the other, then five at once. Every round takes
another model, the most called customers first. Needs the standard library alone. Prints a table,
and last one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping

from calls import Answers, Callers, Connection
from customers import Customer, customers
from traffic import AUTOCOMPLETE, EMBEDDINGS, LENGTHS, Call

AT_ONCE = 5
CALLS_LOADED = 5
HOW = ("cold", "loaded", "five at once")


class Failed(Exception):
    """A call that was not answered, or a model that could not be unloaded."""


def measured(
    url: str, endpoints: Mapping[str, str], people: list[Customer], autocomplete: int, rounds: int
) -> dict[str, dict[int, dict[str, float]]]:
    """kind -> tokens -> how -> median milliseconds. Raises Failed."""
    largest = sorted(people, key=lambda one: -one.share)
    having = [one for one in largest if one.number <= autocomplete]
    found: dict[str, dict[int, dict[str, float]]] = {}
    for kind, who in ((EMBEDDINGS, largest), (AUTOCOMPLETE, having)):
        for tokens, _ in LENGTHS:
            samples: dict[str, list[float]] = {how: [] for how in HOW}
            for at in range(rounds if who else 0):
                _round(url, endpoints, Call(at, who[at % len(who)].key, kind, tokens), samples)
            if who:
                found.setdefault(kind, {})[tokens] = {
                    how: statistics.median(times) for how, times in samples.items()
                }
    return found


def table(found: dict[str, dict[int, dict[str, float]]]) -> list[str]:
    """A line for each kind and length."""
    lines = [f"{'':12}  tokens  " + "".join(f"{how + ' ms':>17}" for how in HOW)]
    for kind, rows in found.items():
        for tokens, times in rows.items():
            cells = "".join(f"{times[how]:17.1f}" for how in HOW)
            lines.append(f"{kind:12}  {tokens:6}  {cells}")
    return lines


def _round(
    url: str, endpoints: Mapping[str, str], call: Call, samples: dict[str, list[float]]
) -> None:
    connection = Connection(url, endpoints)
    _good(connection.unload((call.kind, call.target_model)), call)
    samples["cold"].append(_timed(connection, call))
    samples["loaded"] += [_timed(connection, call) for _ in range(CALLS_LOADED)]
    connection.close()
    answers = Answers()
    callers = Callers(url, endpoints, answers, AT_ONCE)
    now = time.monotonic()
    for _ in range(AT_ONCE):
        callers.put(call, now)
    callers.finish()
    for answer in answers.every:
        _good(answer.said, call)
        samples["five at once"].append(answer.spent_s * 1000.0)


def _timed(connection: Connection, call: Call) -> float:
    begun = time.monotonic()
    _good(connection.call(call), call)
    return (time.monotonic() - begun) * 1000.0


def _good(said: str, call: Call) -> None:
    if said:
        raise Failed(f"{call.kind} {call.target_model}, {call.tokens} tokens: {said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--embeddings-endpoint", default="support-embeddings")
    parser.add_argument("--autocomplete-endpoint", default="support-autocomplete")
    parser.add_argument("--customers", type=int, default=200)
    parser.add_argument("--autocomplete", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5, help="models of each kind and length")
    given = parser.parse_args()
    endpoints = {EMBEDDINGS: given.embeddings_endpoint, AUTOCOMPLETE: given.autocomplete_endpoint}
    try:
        found = measured(
            given.url, endpoints, customers(given.customers), given.autocomplete, given.rounds
        )
    except Failed as error:
        sys.exit(str(error))
    print("\n".join(table(found)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
