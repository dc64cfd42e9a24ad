"""Calls of the support desk's endpoints, timed, over a few connections.

A call waits for a free connection from the moment that it is due: how late it left is kept apart
from how long it was answered. Knows the day's calls and the wire; not what is measured with them.
Needs the standard library alone.
"""

from __future__ import annotations

import http.client
import json
import queue
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from traffic import Call

TIMEOUT_S = 60.0
WORDS = Path(__file__).resolve().with_name("words.txt").read_text(encoding="utf-8").split()
#: A model, as all its calls name it: (kind, name below the prefix).
Model = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one call."""

    call: Call
    late_s: float  #: from when it was due to when it left
    spent_s: float  #: from then to its answer
    said: str  #: what went wrong; empty: nothing
    first: bool  #: nobody had called the model before


@dataclass(slots=True)
class Answers:
    """Filled by all connections."""

    every: list[Answer] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _called: set[Model] = field(default_factory=set)

    def is_first(self, call: Call) -> bool:
        """Whether nobody has asked this before of the call's model."""
        with self._lock:
            before = len(self._called)
            self._called.add((call.kind, call.target_model))
            return len(self._called) > before

    def add(self, answer: Answer) -> None:
        with self._lock:
            self.every.append(answer)

    @property
    def models_called(self) -> int:
        return len(self._called)

    def good(self) -> list[Answer]:
        return [answer for answer in self.every if not answer.said]

    def failures(self) -> dict[str, int]:
        """What was said -> how often."""
        found: dict[str, int] = {}
        for answer in self.every:
            if answer.said:
                found[answer.said] = found.get(answer.said, 0) + 1
        return found


class Connection:
    """One, kept open. Use it from one thread at a time."""

    def __init__(self, url: str, endpoints: Mapping[str, str]) -> None:
        """`endpoints`: kind -> name."""
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        self._endpoints = endpoints

    def call(self, call: Call) -> str:
        """What went wrong; empty: nothing."""
        headers = {
            "Content-Type": "application/json",
            "X-Amzn-SageMaker-Target-Model": call.target_model,
        }
        body = json.dumps({"inputs": [text_of(call)]})
        path = f"/endpoints/{self._endpoints[call.kind]}/invocations"
        return self._post(path, body, headers)

    def unload(self, model: Model) -> str:
        """Ends it on every instance; what went wrong, or nothing."""
        kind, name = model
        path = f"/admin/endpoints/{self._endpoints[kind]}/models/{quote(name)}/unload"
        return self._post(path, "", {})

    def close(self) -> None:
        self._http.close()

    def _post(self, path: str, body: str, headers: dict[str, str]) -> str:
        try:
            self._http.request("POST", path, body, headers)
            answer = self._http.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            return f"{type(error).__name__}: {error}"
        if answer.status == 200:
            return ""
        return f"{answer.status} {content[:200].decode(errors='replace')}"


class Callers:
    """`count` connections that share one queue of calls."""

    def __init__(
        self, url: str, endpoints: Mapping[str, str], answers: Answers, count: int
    ) -> None:
        self._work: queue.Queue[tuple[Call, float] | None] = queue.Queue()
        self._threads = [
            threading.Thread(
                target=self._run, args=(Connection(url, endpoints), answers), daemon=True
            )
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, call: Call, due: float) -> None:
        """`due`: of `time.monotonic`."""
        self._work.put((call, due))

    def finish(self) -> None:
        """Returns when everything is answered."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self, connection: Connection, answers: Answers) -> None:
        while (asked := self._work.get()) is not None:
            call, due = asked
            first = answers.is_first(call)
            left = time.monotonic()
            said = connection.call(call)
            answers.add(Answer(call, left - due, time.monotonic() - left, said, first))
        connection.close()


def text_of(call: Call) -> str:
    """As many words as the call has tokens, the same for the same call."""
    rng = random.Random(f"{call.customer} {call.at_s}")
    return " ".join(rng.choices(WORDS, k=call.tokens))
