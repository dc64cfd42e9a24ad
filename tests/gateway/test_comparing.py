"""Requests that both generations of a rollout, or both revisions of a component, are asked: the
caller is answered first, and what becomes of a pair is counted, and nothing else."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from tests.kit.capture_sink import ScriptedSink
from tests.kit.gateway import Bench, reply, routes, run

from penstock.core.deployment.deployment import CaptureSpec, ComparedRoutes, EndpointRoutes
from penstock.core.rollout.agreement import AgreementSpec
from penstock.core.rollout.pair_balance import AHEAD_MAX
from penstock.errors import ModelError
from penstock.gateway.dispatch.capture import Captures
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.mirroring import comparing

ROLLOUT = 7000


def compared(share: float, spec: AgreementSpec, *, outstanding_max: int = 4) -> EndpointRoutes:
    """Copy 1 is of the old generation, copy 2 of the new one."""
    (old,) = routes(1, outstanding_max=outstanding_max).variants
    (new,) = routes(2, outstanding_max=outstanding_max).variants
    return replace(
        routes(1),
        variants=(replace(old, weight=1 - share), replace(new, weight=share, incoming=True)),
        compared=ComparedRoutes(rollout=ROLLOUT, spec=spec),
    )


class PairBench(Bench):
    """Of each call with the share 0 the old generation answers, with 1 the new one."""

    def __init__(
        self, share: float = 0.0, *, outstanding_max: int = 4, captures: Any = None, **spec: Any
    ) -> None:
        super().__init__(1, captures=captures)
        self.connect("i2")
        self.first, self.other = (1, 2) if share < 1 else (2, 1)
        made = compared(share, AgreementSpec(**spec), outstanding_max=outstanding_max)
        self.dispatcher.publish(made)

    def call(self, answer: bytes = b"answer", **asked: Any) -> Invocation:
        invocation, told = self.invoke(**asked)
        self.link(self.first).reply(answer)
        assert told.told == [("reply", answer)]
        self.dispatcher.written(invocation)
        return invocation

    def pairs_under_way(self) -> dict[str, int]:
        return self.dispatcher.table.endpoints["echo"].pairs.snapshot()

    def outcomes(self) -> list[tuple[int, str]]:
        return [row[3:] for row in self.counting.told if row[2] == "compared"]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_what_one_has_answered_the_other_is_asked_too(share: float) -> None:
    bench = PairBench(share)
    bench.call(b'{"score": 0.5}')
    ((copy, number, _),) = bench.link(bench.other).sent
    assert (copy.body, number, copy.door) == (b"body", bench.other, "shadow")
    bench.link(bench.other).reply(b'{"score": 0.501}')
    assert bench.outcomes() == [(ROLLOUT, "agree")]
    assert bench.link(1).sent == bench.link(2).sent == [], "a copy is not copied again"
    assert bench.dispatcher.in_flight == 0
    assert bench.dispatcher.snapshot()["endpoints"]["echo"]["in_flight"] == 0
    assert bench.dispatcher.outstanding(1) == bench.dispatcher.outstanding(2) == 0


@pytest.mark.parametrize(
    ("share", "first", "other", "outcome"),
    [
        (0.0, b"1.0", b"1.5", "differ"),
        (0.0, b"1.0", None, "new-failed"),
        (0.0, None, b"1.0", "old-failed"),
        (0.0, None, None, "both-failed"),
        (1.0, None, b"1.0", "new-failed"),
        (1.0, b"1.0", None, "old-failed"),
    ],
)
def test_outcomes(share: float, first: bytes | None, other: bytes | None, outcome: str) -> None:
    bench = PairBench(share, slower_max=0.0)
    failure = ModelError("model-raised", "it raised")
    for copy, answer in ((bench.first, first), (bench.other, other)):
        if copy == bench.first:
            invocation, _ = bench.invoke()
        if answer is None:
            bench.link(copy).fail(failure)
        else:
            bench.link(copy).reply(answer)
    bench.dispatcher.written(invocation)
    assert bench.outcomes() == [(ROLLOUT, outcome)]


def test_fewer_new_copies_are_asked_as_much_as_the_old_ones_are() -> None:
    """One instance of a rolling update beside two: it would get the requests of both, and be slow
    because of that."""
    bench = PairBench(outstanding_max=100)
    bench.connect("i3")
    routed = bench.dispatcher.routes("echo")
    assert routed is not None
    old, new = routed.variants
    (more,) = routes(1, 3, outstanding_max=100).variants
    bench.dispatcher.publish(replace(routed, variants=(replace(more, weight=old.weight), new)))
    for _ in range(10):
        invocation, _ = bench.invoke()
        bench.link(1 if bench.link(1).sent else 3).reply()
        bench.dispatcher.written(invocation)
    assert len(bench.link(2).sent) == AHEAD_MAX


def test_a_wait_for_a_turn_is_no_time_of_a_side_with_fewer_copies() -> None:
    bench = PairBench(outstanding_max=100)
    bench.connect("i3")
    routed = bench.dispatcher.routes("echo")
    assert routed is not None
    (more,) = routes(1, 3, outstanding_max=100).variants
    bench.dispatcher.publish(
        replace(routed, variants=(more, replace(routed.variants[1], weight=0)))
    )
    invocation, _ = bench.invoke()
    bench.timers.advance(0.1)
    bench.link(1 if bench.link(1).sent else 3).reply()
    bench.dispatcher.written(invocation)
    bench.timers.advance(0.3)
    link = bench.link(2)
    link.events.on_reply(link.take(), reply(b"answer")._replace(queue_us=250_000))
    assert bench.outcomes() == [(ROLLOUT, "agree")]


def test_an_answer_that_takes_much_longer_is_counted_beside() -> None:
    bench = PairBench(slower_max=1.5)
    for took_s, outcomes in ((0.14, ["agree"]), (0.16, ["agree", "slower"])):
        bench.counting.told.clear()
        invocation, _ = bench.invoke()
        bench.timers.advance(0.1)
        bench.link(1).reply()
        bench.dispatcher.written(invocation)
        bench.timers.advance(took_s)
        bench.link(2).reply()
        assert [what for _, what in bench.outcomes()] == outcomes


def test_where_time_does_not_count_nothing_is_slower() -> None:
    bench = PairBench(slower_max=0.0)
    bench.call()
    bench.timers.advance(5.0)
    bench.link(2).reply()
    assert bench.outcomes() == [(ROLLOUT, "agree")]


def test_without_room_there_is_no_pair_and_nobody_waits() -> None:
    bench = PairBench(outstanding_max=1)
    bench.call()
    assert bench.pairs_under_way() == {"in_flight": 1, "bytes": 4}
    bench.call()
    assert bench.outcomes() == [(ROLLOUT, "unpaired")]
    assert bench.pairs_under_way() == {"in_flight": 1, "bytes": 4}
    bench.link(2).reply()
    assert bench.outcomes()[1:] == [(ROLLOUT, "agree")]
    assert bench.pairs_under_way() == {"in_flight": 0, "bytes": 0}


def test_an_answer_that_other_copies_had_to_give_back_first_is_no_pair() -> None:
    """What it took says nothing of the one that answered."""
    bench = PairBench(outstanding_max=1)
    invocation, _ = bench.invoke()
    invocation.copy_failures = (7,)
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    assert bench.link(2).sent == []
    assert bench.outcomes() == []


def test_a_copy_that_is_given_back_says_nothing_of_a_model() -> None:
    bench = PairBench()
    bench.call()
    bench.link(2).lose()
    assert bench.outcomes() == [(ROLLOUT, "unpaired")]
    assert bench.dispatcher.in_flight == 0


@pytest.mark.parametrize(
    ("reason", "outcome"), [("worker-died", "new-failed"), ("copy-draining", "unpaired")]
)
def test_a_copy_whose_process_died_of_it_has_failed(reason: str, outcome: str) -> None:
    bench = PairBench()
    bench.call()
    bench.link(2).give_back(reason)
    assert bench.outcomes() == [(ROLLOUT, outcome)]


def test_a_copy_that_is_never_answered_has_failed() -> None:
    bench = PairBench()
    bench.call()
    bench.timers.advance(61.0)
    assert bench.outcomes() == [(ROLLOUT, "new-failed")]


def test_sessions_and_what_is_too_long_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = PairBench()
    monkeypatch.setattr(comparing, "ANSWER_MAX", 4)
    bench.call(b"12345")
    assert bench.outcomes() == [(ROLLOUT, "unpaired")]
    bench.call(b"1234")
    assert bench.link(2).sent[0][0].variant == "AllTraffic"
    bench.link(2).reply(b"12345")
    assert bench.outcomes()[1:] == [(ROLLOUT, "unpaired")]
    invocation, _ = bench.invoke()
    invocation.affinity = Affinity(session="s")
    bench.link(1).reply()
    assert bench.link(2).sent == []


def test_a_copy_is_nobodys_call_in_figures_and_captures() -> None:
    sink = ScriptedSink()
    bench = PairBench(captures=Captures(sink, random.Random(1)))
    spec = CaptureSpec(destination_uri="file:///c", percentage=100)
    published = bench.dispatcher.routes("echo")
    assert published is not None
    bench.dispatcher.publish(replace(published, capture=spec))
    bench.call()
    bench.link(2).reply()
    finished = [row for row in bench.counting.told if row[2] == "finished"]
    assert len(finished) == 1
    assert len(sink.records) == 1


def test_a_server_that_stops_waits_for_no_copy() -> None:
    bench = PairBench()
    bench.call()
    assert run(lambda: bench.dispatcher.drain(5.0))
    assert bench.link(2).cancelled


def test_a_share_of_the_requests_is_copied() -> None:
    bench = PairBench(mirror=0.25, outstanding_max=1000)
    for _ in range(400):
        bench.call()
    assert 60 <= len(bench.link(2).sent) <= 140
    bench.link(2).events.on_reply(bench.link(2).take(), reply(b"answer"))
    assert bench.outcomes() == [(ROLLOUT, "agree")]


def test_an_answer_of_a_copy_that_has_left_the_routes_is_no_pair() -> None:
    """It may be of what an earlier rollout replaced."""
    bench = PairBench()
    invocation, _ = bench.invoke()
    _, new = compared(0.0, AgreementSpec()).variants
    (other,) = routes(3).variants
    bench.connect("i3")
    later = replace(compared(0.0, AgreementSpec()), variants=(replace(other, weight=1.0), new))
    bench.dispatcher.publish(later)
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    assert bench.link(2).sent == bench.link(3).sent == []
    assert bench.outcomes() == []


def revisions(*new: int, spec: AgreementSpec | None = None, held: bool = True) -> EndpointRoutes:
    """Component `chat` with copies 1 and 2, of which these are of the new revision; and `rank`."""
    (entry,) = routes(1, 2).variants
    copies = tuple(replace(one, incoming=one.copy in new) for one in entry.copies)
    found = ComparedRoutes(rollout=ROLLOUT, spec=spec or AgreementSpec(slower_max=0.0))
    chat = replace(entry, component="chat", copies=copies, compared=found if held else None)
    rank = replace(routes(3).variants[0], component="rank")
    return replace(routes(), takes_components=True, variants=(chat, rank))


class RevisionBench(Bench):
    """A component whose copies are of two revisions."""

    def __init__(self, *new: int) -> None:
        super().__init__(1)
        for one in (2, 3):
            self.connect(f"i{one}")
        self.dispatcher.publish(revisions(*new))

    def call(self, answer: bytes = b"answer", component: str = "chat") -> int:
        """The copy that answered it."""
        invocation, told = self.invoke(component=component)
        (by,) = [one for one in (1, 2, 3) if self.link(one).sent]
        self.link(by).reply(answer)
        assert told.told == [("reply", answer)]
        self.dispatcher.written(invocation)
        return by

    def outcomes(self) -> list[tuple[Any, ...]]:
        """With whose recorder they were counted."""
        return [(row[2], *row[4:]) for row in self.counting.told if row[3:4] == ("compared",)]


def test_what_a_copy_of_one_revision_answered_a_copy_of_the_other_is_asked() -> None:
    """Callers' requests go to any copy; whose answer is the new one's is seen by the copy."""
    bench = RevisionBench(2)
    for new in (2, 1):
        bench.dispatcher.publish(revisions(new))
        assert bench.call(b"1.0") == 1
        if new == 2:
            bench.link(2).reply(b"1.5")
        else:
            bench.link(2).fail(ModelError("model-raised", "it raised"))
    assert bench.outcomes() == [("chat", ROLLOUT, "differ"), ("chat", ROLLOUT, "old-failed")]
    assert bench.link(1).sent == bench.link(2).sent == [], "a copy is not copied again"
    assert bench.dispatcher.in_flight == 0
    assert bench.outstanding() == {1: 0, 2: 0, 3: 0}


def test_a_copy_goes_to_no_copy_of_the_revision_that_has_answered() -> None:
    bench = RevisionBench(2)
    held = [bench.invoke(component="chat")[0] for _ in range(7)]
    assert [len(bench.link(one).sent) for one in (1, 2)] == [4, 3]
    bench.link(1).reply()
    assert [len(bench.link(one).sent) for one in (1, 2)] == [3, 4], "into its last slot"
    bench.link(1).reply()
    assert [len(bench.link(one).sent) for one in (1, 2)] == [2, 4]
    assert bench.outcomes() == [("chat", ROLLOUT, "unpaired")]
    assert len(held) == 7


def test_other_components_and_later_answers_are_not_compared() -> None:
    bench = RevisionBench(2)
    assert bench.call(component="rank") == 3
    invocation, _ = bench.invoke(component="chat")
    bench.dispatcher.publish(revisions(held=False))
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    assert [bench.link(one).sent for one in (1, 2, 3)] == [[], [], []]
    assert bench.outcomes() == []


def test_a_revision_that_answers_few_callers_is_asked_few_requests_of_the_other() -> None:
    """Else a new copy alone would get the requests of all former ones."""
    bench = RevisionBench(2)
    bench.dispatcher.table.set_usable("i2", False)  # callers' requests go to copy 1 only
    held = [bench.invoke(component="chat")[0] for _ in range(4)]
    bench.dispatcher.table.set_usable("i2", True)
    for _ in range(4):
        bench.link(1).reply()
    assert [len(bench.link(one).sent) for one in (1, 2)] == [0, 4]
    for _ in range(4):
        bench.link(2).reply()
    for one in held:
        bench.dispatcher.written(one)
    bench.dispatcher.publish(revisions(2))  # as whenever a copy comes or goes
    assert bench.call() == 1
    assert bench.link(2).sent == []
    first, _ = bench.invoke(component="chat")
    second, _ = bench.invoke(component="chat")
    bench.link(2).reply()  # one of a caller's
    assert [len(bench.link(one).sent) for one in (1, 2)] == [2, 0]
    assert [bench.link(1).take().door for _ in range(2)] == ["runtime", "shadow"]
    assert (first.variant, second.variant) == ("AllTraffic", "AllTraffic")


@pytest.mark.parametrize(
    ("queue_ms", "outcomes"), [(0, ["agree", "slower"]), (9, ["agree", "slower"]), (60, ["agree"])]
)
def test_of_a_component_the_wait_for_a_turn_is_no_time_of_its_model(
    queue_ms: int, outcomes: list[str]
) -> None:
    """Copied requests find fewer copies to choose from than callers' requests do."""
    bench = RevisionBench(2)
    bench.dispatcher.publish(revisions(2, spec=AgreementSpec(slower_max=1.5)))
    invocation, _ = bench.invoke(component="chat")
    bench.timers.advance(0.1)
    bench.link(1).reply()
    bench.dispatcher.written(invocation)
    bench.timers.advance(0.2)
    link = bench.link(2)
    link.events.on_reply(link.take(), reply(b"answer")._replace(queue_us=queue_ms * 1000))
    assert bench.outcomes() == [("chat", ROLLOUT, one) for one in outcomes]
