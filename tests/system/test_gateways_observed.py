"""One view over several gateway processes: metrics of each and of all, traces, and what stays when
one of them dies."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.fakes.otlp_receiver import OtlpReceiver, receiver
from tests.system.harness import EXAMPLES, Server, wait_until

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
        server = Server(Path(folder) / "state", *flags).start()
        server.deploy("echo", EXAMPLES / "echo" / "python")
        yield server
        assert server.stop() == 0, server.log()


def call(site: Server) -> str:
    """The id of a request that came on a connection of its own."""
    request = urllib.request.Request(
        f"{site.url}/endpoints/echo/invocations",
        data=b"[1]",
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.headers["x-amzn-requestid"])


def samples(site: Server, process: str = "") -> dict[tuple[str, str], float]:
    """(name, label gateway) -> sum over the other labels."""
    query = f"?process={process}" if process else ""
    with urllib.request.urlopen(f"{site.url}/metrics{query}", timeout=60) as answer:
        page = answer.read().decode()
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            key = sample.name, sample.labels.get("gateway", "")
            found[key] = found.get(key, 0.0) + sample.value
    return found


def answered(site: Server, process: str = "") -> float:
    return samples(site, process).get(("penstock_requests_total", process), 0.0)


def test_the_aggregate_is_the_sum_of_what_each_gateway_counts(site: Server) -> None:
    for _ in range(CALLS):
        call(site)
    wait_until(lambda: answered(site) >= CALLS, seconds=30, what="all calls on the aggregate")
    each = [answered(site, name) for name in NAMES]
    assert all(each), "connections are spread over the gateways"
    assert answered(site) == sum(each)
    count = "penstock_request_duration_seconds_count"
    durations = [samples(site, name)[count, name] for name in NAMES]
    assert samples(site)[count, ""] == sum(durations)


def test_a_gateways_own_page_has_what_only_it_knows(site: Server) -> None:
    for name in NAMES:
        page = samples(site, name)
        assert page["process_resident_memory_bytes", ""] > 0
        assert page["penstock_loop_lag_seconds_count", name] >= 0
    with pytest.raises(urllib.error.HTTPError) as caught:
        samples(site, "gateway-9")
    assert caught.value.code == 404
    assert b"gateway-1" in caught.value.read()


def test_every_loop_is_on_the_aggregate(site: Server) -> None:
    def processes() -> set[str]:
        with urllib.request.urlopen(f"{site.url}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        return {
            sample.labels["process"]
            for family in text_string_to_metric_families(page)
            if family.name == "penstock_loop_lag_seconds"
            for sample in family.samples
        }

    wait_until(
        lambda: {"control", *NAMES} <= processes(), seconds=30, what="the loops of all processes"
    )


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
        name = wait_until(lambda: traced(request_id), seconds=30, what="its span")  # noqa: B023
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
    (pid, *_) = _gateway_pids(site)
    os.kill(pid, signal.SIGKILL)
    seen = []

    def restarted() -> bool:
        with contextlib.suppress(OSError):  # its connection went to the one that died
            seen.append(answered(site))
        return len(_gateway_pids(site)) == len(NAMES) and pid not in _gateway_pids(site)

    wait_until(restarted, seconds=60, what="the gateway's restart")
    for _ in range(5):
        wait_until(lambda: _called(site), seconds=30, what="an answer")
    wait_until(lambda: answered(site) >= told + 5, seconds=30, what="later calls on the aggregate")
    assert seen == sorted(seen)
    assert min(seen) >= told
    assert before > 0


def _called(site: Server) -> bool:
    try:
        return bool(call(site))
    except (urllib.error.URLError, OSError):  # its connection went to the one that died
        return False


def _gateway_pids(site: Server) -> list[int]:
    """Gateways among the server's children."""
    assert site.process is not None
    children = Path(f"/proc/{site.process.pid}/task/{site.process.pid}/children")
    found = []
    for pid in children.read_text().split():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"penstock.api.composition.gateway" in command:
            found.append(int(pid))
    return sorted(found)
