"""Requests for a target model that another artifact answers for, or is to: which artifact they
name, and which pairs are compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from tests.kit.gateway import Bench, routes

from penstock.core.deployment.deployment import ComparedRoutes, TargetRoutes
from penstock.core.rollout.agreement import AgreementSpec
from penstock.errors import CallerError
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.wire.frames import RequestMeta, decode_request_meta, encode_request_meta

ROLLOUT = 7000
MOVING = TargetRoutes(target="b", serves="b", incoming="b-2", share=0.25)


class TargetBench(Bench):
    """A host of target models."""

    def __init__(self, *targets: TargetRoutes, outstanding_max: int = 1000) -> None:
        super().__init__(1)
        (pool,) = routes(1, outstanding_max=outstanding_max).variants
        made = replace(routes(1), variants=(replace(pool, multi_model=True),), targets=targets)
        self.dispatcher.publish(made)

    def call(self, target: str = "b", **affinity: Any) -> Invocation:
        door = affinity.pop("door", "runtime")
        meta = RequestMeta(target_model=target, door=door, content_type="text/csv")
        return self.invoke(
            meta=encode_request_meta(meta), affinity=Affinity(model=target, **affinity)
        )[0]

    def asked(self) -> list[str | None]:
        """The artifacts that the host was asked for."""
        return [decode_request_meta(one.meta).target_model for one, *_ in self.link(1).sent]

    def outcomes(self) -> list[tuple[int, str]]:
        return [row[3:] for row in self.counting.told if row[2] == "compared"]


def compared(share: float = 0.5, **spec: Any) -> TargetRoutes:
    made = AgreementSpec(**{"kind": "exact", "slower_max": 0.0} | spec)
    return replace(MOVING, share=share, compared=ComparedRoutes(rollout=ROLLOUT, spec=made))


def test_a_share_of_the_requests_names_the_incoming_artifact() -> None:
    bench = TargetBench(MOVING)
    for _ in range(400):
        bench.call()
    assert 60 <= bench.asked().count("b-2") <= 140
    assert bench.asked().count("b") == 400 - bench.asked().count("b-2")


def test_other_models_and_the_rest_of_a_request_stay_as_they_are() -> None:
    bench = TargetBench(replace(MOVING, share=1.0))
    bench.call("c")
    bench.call("b")
    metas = [decode_request_meta(one.meta) for one, *_ in bench.link(1).sent]
    assert [one.target_model for one in metas] == ["c", "b-2"]
    assert metas[1] == metas[0]._replace(target_model="b-2")


def test_after_a_rollout_the_artifact_that_took_over_answers() -> None:
    bench = TargetBench(TargetRoutes(target="b", serves="b-2"))
    invocation = bench.call()
    assert bench.asked() == ["b-2"]
    assert invocation.affinity is not None
    assert invocation.affinity.model == "b-2", "routing looks for hosts that have it"


def test_a_session_stays_with_the_artifact_that_serves() -> None:
    bench = TargetBench(replace(MOVING, share=0.99))
    for number in range(20):
        bench.call(session=f"s{number}", opens=True)
    assert set(bench.asked()) == {"b"}


def test_answers_carry_the_name_that_callers_know() -> None:
    bench = TargetBench(replace(MOVING, share=1.0))
    bench.call(door="oip")
    meta = decode_request_meta(bench.link(1).sent[0][0].meta)
    assert orjson.loads(meta.parameters or "") == {"model": "echo:b"}


def test_a_request_that_is_tried_again_goes_to_the_same_artifact() -> None:
    bench = TargetBench(replace(MOVING, share=0.5))
    for _ in range(20):
        bench.call()
        first = bench.asked()
        bench.link(1).give_back("worker-died")
        bench.timers.advance(5.0)
        assert bench.asked() == first
        bench.link(1).reply()


@pytest.mark.parametrize(("share", "first", "other"), [(0.001, "b", "b-2"), (0.999, "b-2", "b")])
def test_what_one_artifact_has_answered_the_other_is_asked_too(
    share: float, first: str, other: str
) -> None:
    bench = TargetBench(compared(share))
    bench.call()
    assert bench.asked() == [first]
    bench.link(1).reply(b"answer")
    assert bench.asked() == [other]
    bench.link(1).reply(b"another")
    assert bench.outcomes() == [(ROLLOUT, "differ")]
    assert bench.asked() == [], "a copy is not copied again"
    assert bench.dispatcher.outstanding(1) == 1, "the caller's answer is not written yet"


def test_only_the_target_model_in_the_rollout_is_compared() -> None:
    bench = TargetBench(compared())
    bench.call("c")
    bench.link(1).reply(b"answer")
    assert (bench.asked(), bench.outcomes()) == ([], [])


def test_where_the_incoming_artifact_is_gone_the_other_one_answers() -> None:
    bench = TargetBench(compared(0.999))
    invocation = bench.call()
    gone = CallerError("target-model-not-found", "nothing lies there")
    bench.link(1).fail(gone)
    assert bench.asked() == ["b"]
    assert bench.outcomes() == [(ROLLOUT, "new-failed")]
    assert bench.dispatcher.outstanding(1) == 1
    bench.link(1).fail(gone)
    assert invocation.error is not None, "both are gone"
    assert bench.asked() == [], "it is counted already"


def test_without_room_there_is_no_pair() -> None:
    bench = TargetBench(compared(), outstanding_max=1)
    bench.call()
    bench.link(1).reply(b"answer")
    assert (bench.asked(), bench.outcomes()) == ([], [(ROLLOUT, "unpaired")])


def test_a_loaded_model_is_the_artifact_that_answers() -> None:
    bench = TargetBench(TargetRoutes(target="b", serves="b-2"))
    bench.dispatcher.table.set_models("i1", 1, ["b-2"], [], free_bytes=0)
    assert bench.dispatcher.is_loaded("echo", "b")
    assert not bench.dispatcher.is_loaded("echo", "c")
    assert bench.dispatcher.hosts_for("echo", "b") == [1]
