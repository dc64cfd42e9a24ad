"""Requests with a slot of their own: what becomes of each that ends, dies, or nobody wants."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.fake_runtimes import FakeEngineRuntime
from tests.kit.timers import ManualTimers

from penstock.artifacts.description.description import Batching
from penstock.clock import ManualClock
from penstock.errors import ModelError, PenstockError
from penstock.instance.copy import Copy
from penstock.instance.engines.sequences import Sequences
from penstock.instance.loading.described import slots_spec
from penstock.instance.request import Request
from penstock.wire import frames

GONE = ModelError("worker-died", "it died")
KINDS = {frames.CHUNK: "chunk", frames.END: "end"}


class SequencesRig:
    """A copy with two slots; also the connection that keeps what it is sent."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.clock = clock
        self.said: list[tuple[int, str]] = []
        self.events: list[str] = []
        self.runtime = FakeEngineRuntime()
        self.copy = Copy(
            7,
            Sequences(self.runtime, name="writer", version="1"),
            slots_spec(Batching(), 2),
            clock=clock,
            call_at=ManualTimers(clock).call_at,
            on_state=self._note,
        )

    def _note(self, event: str, error: PenstockError | None) -> None:
        self.events.append(event)

    def forget(self, ident: int) -> None:
        """Nothing is looked up here."""

    def send(self, frame: bytes) -> None:
        (one,) = frames.FrameDecoder().feed(frame)
        if one.kind == frames.RETURNED:
            self.said.append((one.ident, f"returned {one.payload.decode()}"))
        elif one.kind in KINDS:
            self.said.append((one.ident, KINDS[one.kind]))
        else:
            body = json.loads(frames.decode_reply(one.payload, one.meta_bytes).body)
            self.said.append((one.ident, body[0]["generated_text"] if isinstance(body, list) else
                              f"error {body['code']}"))  # fmt: skip

    def ask(self, *idents: int, stream: bool = False, alone: bool = False) -> list[Request]:
        meta = frames.encode_request_meta(frames.RequestMeta())
        body = json.dumps({"inputs": "a", "stream": stream}).encode()
        now = self.clock.monotonic()
        asked = [Request(self, ident, meta, body, now, None, 0, alone) for ident in idents]
        for request in asked:
            self.copy.accept(request, now)
        self.copy.driver.turn(now)
        return asked

    def token(self, sequence: int, **more: Any) -> None:
        self.runtime.say([{"i": sequence, "t": [5], "x": "hi", "l": [["hi", -1.0, []]], **more}])


def test_slots_are_filled_again_by_what_ends_and_by_what_nobody_wants() -> None:
    rig = SequencesRig()
    _, second, *_ = rig.ask(11, 12, 13, 14)
    assert list(rig.runtime.prompts) == [1, 2]
    rig.token(1, f="length")
    assert rig.said == [(11, "hi")]
    assert list(rig.runtime.prompts) == [1, 2, 3]
    rig.copy.cancel(second)
    assert list(rig.runtime.prompts) == [1, 3, 4]
    rig.token(2, f="length")  # was on its way when it was cancelled
    rig.token(3, f="length")
    rig.token(4, f="length")
    assert rig.said == [(11, "hi"), (13, "hi"), (14, "hi")]
    assert (rig.copy.unanswered, rig.copy.requests, rig.runtime.answered) == (0, 3, 3)


def test_what_an_engine_says_in_error_is_that_requests_answer() -> None:
    rig = SequencesRig()
    rig.ask(11, 12)
    rig.runtime.say([{"i": 1, "e": ModelError("engine-failed", "no").to_dict()}])
    rig.token(2, f="length")
    assert rig.said == [(11, "error engine-failed"), (12, "hi")]


def test_an_engine_that_dies_gives_back_all_but_what_has_streamed() -> None:
    rig = SequencesRig()
    rig.ask(11, stream=True)
    rig.ask(12, 13)
    rig.token(1)
    rig.copy.lane_lost(0, GONE)
    assert rig.said == [
        (11, "chunk"),
        (11, "error stream-broken"),
        (12, "returned worker-died-in-company"),
        (13, "returned copy-lost"),
    ]
    rig.ask(14)
    assert rig.said[4:] == [(14, "returned copy-lost")]
    rig.copy.lane_ready(0)
    rig.ask(15, 16, 17)
    assert list(rig.runtime.prompts) == [1, 2, 3, 4]  # both slots are there again, and no third
    assert rig.events == ["copy-lost", "copy-ready"]


def test_one_suspect_is_tried_at_a_time_until_it_has_begun_to_answer() -> None:
    """Prompts kill engines, not later tokens: from its first one on, the death is another's."""
    rig = SequencesRig()
    rig.ask(11, alone=True)
    rig.ask(12, alone=True)
    assert rig.said == [(12, "returned another-is-tried-alone")]
    rig.token(1)
    rig.ask(13, alone=True)
    assert len(rig.said) == 1
    rig.copy.lane_lost(0, GONE)
    assert rig.said[1:] == [
        (11, "returned worker-died-in-company"),
        (13, "returned worker-died"),
    ]


def test_a_copy_that_is_closed_gives_back_all_but_what_has_streamed() -> None:
    rig = SequencesRig()
    rig.ask(11, stream=True)
    rig.ask(12, 13)
    rig.token(1)
    rig.copy.drain(lambda: None)
    rig.ask(14)
    rig.copy.close()
    assert rig.said == [
        (11, "chunk"),
        (14, "returned draining"),
        (13, "returned draining"),
        (11, "error stream-broken"),
        (12, "returned draining"),
    ]
    assert list(rig.runtime.prompts) == [1, 2]
    assert rig.copy.unanswered == 0
