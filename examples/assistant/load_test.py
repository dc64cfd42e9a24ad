"""Load on the endpoint `assistant`: how long until the first word, the first card, the end.

    python examples/assistant/load_test.py --url http://127.0.0.1:8080 --readers 4

Each reader asks its next question when the last answer is complete, on a connection of its own.
Needs the standard library alone. Prints one JSON object; an answer without its `done` counts as
failed, and so does one that the pipeline could not complete.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

QUESTIONS = (
    "I need a blue tent under $200",
    "which trail shoes are waterproof?",
    "a quiet desk lamp for the office",
    "what is the cheapest yellow backpack?",
    "best rated headphones",
    "a warm jacket for winter camping",
    "I am looking for a red rug",
    "show me a knife with a gift box",
    "a lightweight duffel bag for travel",
    "thanks, that is all",
)


@dataclass
class Seen:
    """What all readers saw after the warm-up. Times in s since the question."""

    first_text: list[float] = field(default_factory=list)
    first_card: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    characters: int = 0
    cards: int = 0
    notices: int = 0
    failed: int = 0
    reason: str = ""


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    rest = b""
    while data := answer.read1(65_536):
        rest += data
        *blocks, rest = rest.split(b"\n\n")
        for block in blocks:
            kind, _, value = block.partition(b"\n")
            yield kind.removeprefix(b"event: ").decode(), json.loads(value.removeprefix(b"data: "))


def ask(url: str, endpoint: str, question: str, seen: Seen | None) -> None:
    """One question; `seen` None: a warm-up. Raises OSError and ValueError."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    began = time.monotonic()
    first: dict[str, float] = {}
    counts = {"text": 0, "product": 0, "notice": 0}
    try:
        body = json.dumps({"question": question, "stream": True})
        path = f"/endpoints/{endpoint}/invocations"
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(answer.read().decode(errors="replace")[:300])
        for kind, data in events(answer):
            first.setdefault(kind, time.monotonic() - began)
            if kind in counts:
                counts[kind] += len(data["text"]) if kind == "text" else 1
    finally:
        connection.close()
    if "done" not in first:
        raise ValueError("the answer broke off")
    if seen is not None:
        seen.whole.append(first["done"])
        seen.first_text += [first["text"]] if "text" in first else []
        seen.first_card += [first["product"]] if "product" in first else []
        seen.characters += counts["text"]
        seen.cards += counts["product"]
        seen.notices += counts["notice"]


def read(number: int, asked: argparse.Namespace, begin: float, end: float, seen: Seen) -> None:
    at = number
    while (now := time.monotonic()) < end:
        try:
            question = QUESTIONS[at % len(QUESTIONS)]
            ask(asked.url, asked.endpoint, question, seen if now >= begin else None)
        except (OSError, ValueError, http.client.HTTPException) as error:
            seen.failed, seen.reason = seen.failed + 1, str(error)
            time.sleep(0.1)
        at += 1


def cuts(values: list[float], name: str) -> dict[str, float]:
    """Median and 99th percentile in ms."""
    if len(values) < 2:
        return {}
    found = statistics.quantiles(sorted(values), n=100, method="inclusive")
    return {
        f"{name}_ms_p50": round(found[49] * 1e3, 1),
        f"{name}_ms_p99": round(found[98] * 1e3, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--endpoint", default="assistant")
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0)
    asked = parser.parse_args()
    try:
        ask(asked.url, asked.endpoint, QUESTIONS[0], None)
    except (OSError, ValueError) as error:
        sys.exit(f"{asked.url}: {error}")
    begin = time.monotonic() + 1.0  # warm-up
    end = begin + asked.seconds
    seen = Seen()
    readers = [
        threading.Thread(target=read, args=(number, asked, begin, end, seen), daemon=True)
        for number in range(asked.readers)
    ]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    if seen.failed:
        print(f"failed: {seen.reason}", file=sys.stderr)
    if not seen.whole:
        sys.exit(f"no answer within {asked.seconds:g} s")
    print(
        json.dumps(
            {
                "answers_per_s": round(len(seen.whole) / asked.seconds, 2),
                **cuts(seen.first_text, "first_text"),
                **cuts(seen.first_card, "first_card"),
                **cuts(seen.whole, "whole"),
                "characters_per_answer": round(seen.characters / len(seen.whole)),
                "cards_per_answer": round(seen.cards / len(seen.whole), 2),
                "notices": seen.notices,
                "failed": seen.failed,
                "readers": asked.readers,
            }
        )
    )
    sys.exit(1 if seen.failed else 0)


if __name__ == "__main__":
    main()
