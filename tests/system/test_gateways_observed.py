"""One view over several gateway processes: metrics of each and of all, traces, and what stays when
one of them dies."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.kit.otlp_receiver import OtlpReceiver, receiver
from tests.kit.polling import wait_until
from tests.kit.processes import children_of
from tests.kit.servers import EXAMPLES, Server, up

pytestmark = pytest.mark.system

NAMES = ("gateway-1", "gateway-2")
CALLS = 60


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpReceiver]:
    with receiver() as found:
        yield found


@pytest.fixture(scope="module")
def site(collector: OtlpReceiver) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")  # the library's; ms between batches
        flags = ("--gateways", "2", "--otlp-endpoint", collector.url)
        with up(Path(folder), *flags) as server:
            server.deploy("echo", EXAMPLES / "echo" / "python")
            yield server


def call(site: Server) -> str:
    """The id of a request that came on a connection of its own."""
    status, _, headers = site.ask("/endpoints/echo/invocations", b"[1]")
    assert status == 200
    return str(headers["x-amzn-requestid"])


def samples(site: Server, process: str = "") -> dict[tuple[str, str], float]:
    """(name, label gateway) -> sum over the other labels."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(site.page(process)):
        for sample in family.samples:
            key = sample.name, sample.labels.get("gateway", "")
            found[key] = found.get(key, 0.0) + sample.value
    return found


def answered(site: Server, process: str = "") -> float:
    return samples(site, process).get(("penstock_requests_total", process), 0.0)


def test_the_aggregate_is_the_sum_of_what_each_gateway_counts(site: Server) -> None:
    for _ in range(CALLS):
        call(site)
    wait_until(lambda: answered(site) >= CALLS, "all calls on the aggregate", 30)
    assert all(answered(site, name) for name in NAMES), "connections are spread over the gateways"
    for counter in ("penstock_requests_total", "penstock_request_duration_seconds_count"):

        def is_the_sum(counter: str = counter) -> bool:
            """A gateway tells what it has counted once a second."""
            each = [samples(site, name)[counter, name] for name in NAMES]
            return samples(site)[counter, ""] == sum(each)

        wait_until(is_the_sum, counter, 30)


def test_a_gateways_own_page_has_what_only_it_knows(site: Server) -> None:
    for name in NAMES:
        page = samples(site, name)
        assert page["process_resident_memory_bytes", ""] > 0
        assert page["penstock_loop_lag_seconds_count", name] >= 0
    status, body, _ = site.ask("/metrics?process=gateway-9")
    assert (status, b"gateway-1" in body) == (404, True)


def test_every_loop_is_on_the_aggregate(site: Server) -> None:
    def processes() -> set[str]:
        return {
            sample.labels["process"]
            for family in text_string_to_metric_families(site.page())
            if family.name == "penstock_loop_lag_seconds"
            for sample in family.samples
        }

    wait_until(lambda: {"control", *NAMES} <= processes(), "the loops of all processes", 30)


def test_a_request_is_traced_and_explained_whichever_gateway_had_it(
    site: Server, collector: OtlpReceiver
) -> None:
    def traced(request_id: str) -> str | None:
        found = collector.of_request(request_id)
        own = found.get("runtime echo")
        return own.resource["service.instance.id"].split("/")[1] if own is not None else None

    seen = set()
    for _ in range(CALLS):
        request_id = call(site)
        name = wait_until(lambda: traced(request_id), "its span", 30)  # noqa: B023
        story = site.get(f"/admin/requests/{request_id}")
        assert story["gateway"] == name
        assert story["trace_id"] == collector.of_request(request_id)["runtime echo"].trace_id
        seen.add(name)
        if seen == set(NAMES):
            return
    raise AssertionError(f"only {seen} had requests")


def test_counts_of_a_gateway_that_was_killed_stay(site: Server) -> None:
    told = answered(site)
    lag = ("penstock_loop_lag_seconds_count", "")
    before = samples(site)[lag]
    (pid, *_) = gateway_pids(site)
    os.kill(pid, signal.SIGKILL)
    seen = []

    def restarted() -> bool:
        with contextlib.suppress(OSError):  # its connection went to the one that died
            seen.append(answered(site))
        return len(gateway_pids(site)) == len(NAMES) and pid not in gateway_pids(site)

    wait_until(restarted, "the gateway's restart", 60)
    for _ in range(5):
        wait_until(lambda: _called(site), "an answer", 30)
    wait_until(lambda: answered(site) >= told + 5, "later calls on the aggregate", 30)
    assert seen == sorted(seen)
    assert min(seen) >= told
    assert before > 0


def gateway_pids(site: Server) -> list[int]:
    return children_of(site.pid, "penstock.api.composition.gateway")


def _called(site: Server) -> bool:
    try:
        return bool(call(site))
    except OSError:  # its connection went to the one that died
        return False
