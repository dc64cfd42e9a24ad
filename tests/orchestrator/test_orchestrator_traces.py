"""Traces through an orchestrator: what its regions are told, and what a collector receives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.otlp_receiver import OtlpReceiver, SpanSeen, receiver
from tests.kit.polling import until
from tests.orchestrator.region_site import ScriptedRegion, nothing, reset, saying, site

from penstock.config import TelemetryConfig

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"
TO_EU = {"more": {"us": {"ratio": 0.0001}}, "mode": "manual"}  #: as good as all of it
SERVER, CLIENT = 2, 3  #: SpanKind


@pytest.fixture
def collector() -> Iterator[OtlpReceiver]:
    with receiver() as found:
        yield found


def traced(collector: OtlpReceiver, *, share: float = 1.0) -> TelemetryConfig:
    return TelemetryConfig(otlp_endpoint=collector.url, trace_share=share, metrics_every_s=0.0)


def by_name(collector: OtlpReceiver) -> dict[str, SpanSeen]:
    """Of the only request there was. Ask once the orchestrator has stopped: all was sent then."""
    spans = collector.spans
    assert len({one.trace_id for one in spans}) == 1
    return {one.name: one for one in spans}


def run(test: Any) -> None:
    asyncio.run(test)


def test_each_attempt_is_a_span_and_its_region_is_told_of_it(
    tmp_path: Path, collector: OtlpReceiver
) -> None:
    """The caller's trace goes on; what the first region does with it stands beneath its attempt."""
    told: dict[str, dict[str, str]] = {}
    story: dict[str, Any] = {}
    request_id = ""

    async def scenario() -> None:
        nonlocal request_id, story
        async with site(tmp_path, "eu", "us", telemetry=traced(collector), **TO_EU) as here:
            here.regions["eu"].script = reset
            headers = {"traceparent": PARENT, "tracestate": "congo=t61"}
            answer = await here.ask(headers=headers)
            assert (answer.status, answer.headers["x-penstock-region"]) == (200, "us")
            request_id = answer.headers["x-amzn-requestid"]
            told.update({name: one.asked[0].headers for name, one in here.regions.items()})
            story = await here.told(f"/admin/requests/{request_id}")

    run(scenario())
    found = by_name(collector)
    own, lost, well = found["invoke echo"], found["region eu"], found["region us"]
    assert (own.trace_id, own.parent_id, own.kind, own.failed) == (TRACE, CALLER, SERVER, "")
    assert {name: one["traceparent"] for name, one in told.items()} == {
        "eu": f"00-{TRACE}-{lost.span_id}-01",
        "us": f"00-{TRACE}-{well.span_id}-01",
    }
    assert {one["tracestate"] for one in told.values()} == {"congo=t61"}
    for attempt in (lost, well):
        assert (attempt.parent_id, attempt.kind) == (own.span_id, CLIENT)
    assert own.start_ns <= lost.start_ns <= lost.end_ns <= well.start_ns <= well.end_ns
    assert well.end_ns <= own.end_ns
    facts = own.attributes
    assert facts.pop("penstock.first_byte_ms") > 0
    assert facts == {
        "penstock.status": 200, "penstock.request_id": request_id, "penstock.endpoint": "echo",
        "penstock.operation": "invoke", "penstock.attempts": 2, "penstock.resumed": 0,
        "penstock.held_ms": 0.0, "penstock.region": "us",
        "penstock.route.reason": well.attributes["penstock.route.reason"],
    }  # fmt: skip
    assert lost.failed == lost.attributes["penstock.outcome"] == story["attempts"][0]["outcome"]
    assert (well.failed, well.attributes["penstock.outcome"]) == ("", "status-200")
    assert well.attributes["penstock.first_byte_ms"] > 0
    assert own.resource["service.instance.id"].split("/")[1] == "orchestrator"
    assert story["trace_id"] == TRACE


def test_the_time_for_which_a_request_was_held_is_a_span(
    tmp_path: Path, collector: OtlpReceiver
) -> None:
    async def scenario() -> None:
        region = ScriptedRegion("eu", rooms={"echo": 0})
        async with site(tmp_path, regions=[region], telemetry=traced(collector)) as here:
            asking = asyncio.ensure_future(here.ask())

            async def waits() -> bool:
                told = await here.told("/penstock/v1/ratios?endpoint=echo")
                return bool(told["traffic"][0]["held"] == 1)

            await until(waits, "it is held")
            region.rooms["echo"] = 1
            assert (await asking).status == 200

    run(scenario())
    found = by_name(collector)
    own, held, attempt = found["invoke echo"], found["held"], found["region eu"]
    assert own.parent_id == ""
    assert (held.parent_id, attempt.parent_id) == (own.span_id, own.span_id)
    assert held.attributes == {"penstock.route.reason": "no-room"}
    assert own.start_ns <= held.start_ns <= held.end_ns <= attempt.start_ns
    held_ms = (held.end_ns - held.start_ns) / 1e6
    assert own.attributes["penstock.held_ms"] == pytest.approx(held_ms, abs=0.01)


def test_a_request_that_no_region_takes_says_why(tmp_path: Path, collector: OtlpReceiver) -> None:
    async def scenario() -> None:
        region = ScriptedRegion("eu", rooms={"echo": 0})
        async with site(
            tmp_path, regions=[region], telemetry=traced(collector), hold_s_max=0.2
        ) as here:
            assert (await here.ask()).status == 503

    run(scenario())
    found = by_name(collector)
    own = found["invoke echo"]
    assert set(found) == {"invoke echo", "held"}
    code = "no-region-room"
    assert (own.failed, own.attributes["penstock.error"]) == (code, code)
    assert (own.attributes["penstock.status"], own.attributes["penstock.attempts"]) == (503, 0)


def test_a_span_has_failed_where_the_fault_is_not_the_callers(
    tmp_path: Path, collector: OtlpReceiver
) -> None:
    async def scenario() -> None:
        async with site(tmp_path, "eu", telemetry=traced(collector)) as here:
            for status in (400, 424, 500):
                here.regions["eu"].script = saying(b"{}", status=status)
                assert (await here.ask()).status == status

    run(scenario())
    failed = {
        (one.name, one.attributes.get("penstock.status")): one.failed for one in collector.spans
    }
    assert failed["invoke echo", 400] == ""
    assert failed["invoke echo", 424] == "status-424"
    assert failed["invoke echo", 500] == "status-500"


def test_a_client_that_goes_away_is_no_fault(tmp_path: Path, collector: OtlpReceiver) -> None:
    async def scenario() -> None:
        async with site(tmp_path, "eu", telemetry=traced(collector)) as here:
            region = here.regions["eu"]
            region.script = nothing
            _, writer = await here.open("/endpoints/echo/invocations")

            async def asked() -> bool:
                return bool(region.asked)

            async def gone() -> bool:
                return region.gone == 1

            await until(asked, "it is asked")
            writer.transport.abort()
            await until(gone, "the region hears of it")

    run(scenario())
    found = by_name(collector)
    assert found["invoke echo"].attributes["penstock.status"] == 499
    assert [one.failed for one in found.values()] == ["", ""]
    assert found["region eu"].attributes["penstock.outcome"] == "client-gone"


@pytest.mark.parametrize(
    ("share", "headers"),
    [(1.0, {"traceparent": f"00-{TRACE}-{CALLER}-00", "tracestate": "congo=t61"}), (0.0, {})],
    ids=["by-its-caller", "by-the-share"],
)
def test_what_is_not_recorded_is_told_on_as_such(
    tmp_path: Path, collector: OtlpReceiver, share: float, headers: dict[str, str]
) -> None:
    """So that no region records a part of a trace that is not there."""

    async def scenario() -> None:
        async with site(tmp_path, "eu", telemetry=traced(collector, share=share)) as here:
            answer = await here.ask(headers=headers)
            told = here.regions["eu"].asked[0].headers
            version, trace_id, span_id, flags = told["traceparent"].split("-")
            assert (version, flags) == ("00", "00")
            assert (trace_id == TRACE) == bool(headers)
            assert span_id != CALLER
            assert told.get("tracestate") == headers.get("tracestate")
            story = await here.told(f"/admin/requests/{answer.headers['x-amzn-requestid']}")
            assert "trace_id" not in story

    run(scenario())
    assert collector.spans == []


def test_a_trace_that_can_not_be_read_is_replaced_as_a_whole(
    tmp_path: Path, collector: OtlpReceiver
) -> None:
    async def scenario() -> None:
        async with site(tmp_path, "eu", telemetry=traced(collector)) as here:
            await here.ask(headers={"Traceparent": "what is this", "Tracestate": "congo=t61"})
            told = here.regions["eu"].asked[0].headers
            assert told["traceparent"].endswith("-01")
            assert "tracestate" not in told

    run(scenario())
    assert by_name(collector)["invoke echo"].parent_id == ""


async def test_without_an_endpoint_a_trace_goes_on_unread(tmp_path: Path) -> None:
    async with site(tmp_path, "eu") as here:
        await here.ask(headers={"traceparent": PARENT, "tracestate": "congo=t61"})
        await here.ask()
        with_it, without = (one.headers for one in here.regions["eu"].asked)
        assert (with_it["traceparent"], with_it["tracestate"]) == (PARENT, "congo=t61")
        assert "traceparent" not in without


def test_spans_that_can_not_be_made_cost_no_request(
    tmp_path: Path, collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_named: Any) -> None:
        raise ValueError("no")

    monkeypatch.setattr("penstock.api.traffic.orchestrator.TrafficSpans.ended", broken)

    async def scenario() -> None:
        async with site(tmp_path, "eu", telemetry=traced(collector)) as here:
            assert [(await here.ask()).status for _ in range(3)] == [200] * 3

    run(scenario())
    assert collector.spans == []


async def test_the_orchestrators_metrics_are_pushed_under_the_names_of_its_page(
    tmp_path: Path, collector: OtlpReceiver
) -> None:
    config = TelemetryConfig(otlp_endpoint=collector.url, metrics_every_s=3600.0)
    async with site(tmp_path, "eu", telemetry=config) as here:
        await here.ask()
        page = (await here.ask("/metrics", b"", method="GET")).body.decode()
    assert "penstock_traffic_requests" in collector.metrics  # sent when it stopped
    for name in collector.metrics:
        assert name in page
