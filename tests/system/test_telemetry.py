"""Traces and metrics of a real server, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import triton_files
from tests.kit.otlp_receiver import OtlpReceiver, SpanSeen, receiver
from tests.kit.polling import wait_until
from tests.kit.regions import Orchestrated
from tests.kit.servers import Server

pytestmark = pytest.mark.system

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"
SERVER = 2  #: SpanKind

TELLS = """
def model_fn(model_dir, context=None):
    return None

def transform_fn(model, body, content_type, accept, context=None):
    headers = context.get_all_request_header(0)
    found = {name: headers.get(name) for name in ("traceparent", "tracestate")}
    import json
    if b"fail" in (body if isinstance(body, bytes) else body.encode()):
        raise ValueError("asked to")
    return json.dumps(found), "application/json"
"""


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpReceiver]:
    with receiver() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: OtlpReceiver) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("telemetry")
    config = folder / "penstock.toml"
    config.write_text("[telemetry]\nmetrics_every_s = 0.5\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")  # the library's; ms between batches
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        started = Server(folder / "state", "--config", str(config)).start()
    code = folder / "tells" / "code"
    code.mkdir(parents=True)
    (code / "inference.py").write_text(TELLS)
    started.deploy("tells", folder / "tells")
    started.deploy("embed", triton_files.embeddings(folder / "repository"))
    yield started
    assert started.stop() == 0, started.log()


def invoke(
    server: Server, body: bytes = b"{}", **headers: str
) -> tuple[int, dict[str, str | None], str]:
    """Status, what the model said of its headers, and the id of the request."""
    status, answer, told = server.ask("/endpoints/tells/invocations", body, headers)
    return status, json.loads(answer) if status == 200 else {}, told["x-amzn-RequestId"]


def spans_of(collector: OtlpReceiver, request_id: str, *names: str) -> dict[str, SpanSeen]:
    def there() -> dict[str, SpanSeen] | None:
        found = collector.of_request(request_id)
        return found if set(names) <= set(found) else None

    found: dict[str, SpanSeen] = wait_until(there, f"spans of {request_id}", 60)
    return found


def test_a_callers_trace_goes_on_through_gateway_instance_and_model(
    server: Server, collector: OtlpReceiver
) -> None:
    _, said, request_id = invoke(server, traceparent=PARENT, tracestate="congo=t61rcWkgMzE")
    spans = spans_of(collector, request_id, "runtime tells", "queue", "run")
    own, queue, run = spans["runtime tells"], spans["queue"], spans["run"]
    assert (own.trace_id, own.parent_id, own.kind) == (TRACE, CALLER, SERVER)
    assert (queue.parent_id, run.parent_id) == (own.span_id, own.span_id)
    assert said == {
        "traceparent": f"00-{TRACE}-{run.span_id}-01",
        "tracestate": "congo=t61rcWkgMzE",
    }
    assert own.state == "congo=t61rcWkgMzE"
    assert own.start_ns <= queue.start_ns <= queue.end_ns <= run.start_ns <= run.end_ns
    assert run.end_ns <= own.end_ns
    assert own.attributes["penstock.endpoint"] == "tells"
    assert own.attributes["penstock.status"] == 200
    assert own.attributes["penstock.route.reason"]
    assert run.attributes["penstock.batch.rows"] == 1
    assert own.resource["service.name"] == "penstock"
    story = server.get(f"/admin/requests/{request_id}")
    assert story["trace_id"] == TRACE


def test_a_request_without_a_trace_begins_one(server: Server, collector: OtlpReceiver) -> None:
    _, said, request_id = invoke(server)
    spans = spans_of(collector, request_id, "runtime tells", "run")
    own = spans["runtime tells"]
    assert own.parent_id == ""
    assert said["traceparent"] == f"00-{own.trace_id}-{spans['run'].span_id}-01"


def test_what_its_caller_does_not_record_is_not_recorded_and_still_told_to_the_model(
    server: Server, collector: OtlpReceiver
) -> None:
    other = "a" * 32
    _, said, _ = invoke(server, traceparent=f"00-{other}-{CALLER}-00")
    assert said["traceparent"] is not None
    assert said["traceparent"].startswith(f"00-{other}-")
    assert said["traceparent"].endswith("-00")
    _, _, later = invoke(server)
    spans_of(collector, later, "runtime tells")  # what came before it would have been sent
    assert not [one for one in collector.spans if one.trace_id == other]


def test_a_model_that_fails_is_an_error_of_its_span(
    server: Server, collector: OtlpReceiver
) -> None:
    status, _, request_id = invoke(server, b'{"x": "fail"}')
    assert status == 424
    own = spans_of(collector, request_id, "runtime tells")["runtime tells"]
    assert own.failed
    assert own.attributes["error.type"] == own.failed


def test_calls_between_the_models_of_an_ensemble_are_spans_of_their_request(
    server: Server, collector: OtlpReceiver
) -> None:
    data = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["ab"]}
    body = json.dumps({"inputs": [data]}).encode()
    request = urllib.request.Request(
        f"{server.url}/v2/models/embed/infer",
        data=body,
        headers={"content-type": "application/json", "traceparent": PARENT},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200

    def there() -> list[SpanSeen] | None:
        mine = [one for one in collector.spans if one.name == "oip embed"]
        found = [one for one in collector.spans if mine and one.trace_id == mine[0].trace_id]
        names = [one.name for one in found]
        return found if {"letters", "small", "large", "run", "oip embed"} <= set(names) else None

    found: list[SpanSeen] = wait_until(there, "spans of the ensemble", 60)
    (run,) = [one for one in found if one.name == "run" and _is_of(one, found, "oip embed")]
    by_id = {one.span_id: one for one in found}
    for name in ("letters", "small", "large"):
        for span in (one for one in found if one.name == name):
            assert span.start_ns <= span.end_ns
            chain = span
            while chain.span_id != run.span_id:
                chain = by_id[chain.parent_id]


def _is_of(span: SpanSeen, spans: list[SpanSeen], name: str) -> bool:
    return any(one.span_id == span.parent_id and one.name == name for one in spans)


def test_a_grpc_call_goes_on_with_the_trace_of_its_metadata(
    server: Server, collector: OtlpReceiver
) -> None:
    import grpc

    from penstock.wire.oip_messages import SERVICE, method_classes

    request_class, _ = method_classes("ModelInfer")
    message = request_class(model_name="embed")
    tensor = message.inputs.add(name="TEXT", datatype="BYTES", shape=[1, 1])
    tensor.contents.bytes_contents.append(b"ab")
    trace = "b" * 32
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        infer(
            message.SerializeToString(),
            metadata=(("traceparent", f"00-{trace}-{CALLER}-01"),),
            timeout=60,
        )
    own: SpanSeen = wait_until(
        lambda: next(
            (
                one
                for one in collector.spans
                if one.trace_id == trace and one.name == "oip-grpc embed"
            ),
            None,
        ),
        "the span of the call",
        60,
    )
    assert own.parent_id == CALLER


def test_one_trace_goes_from_an_orchestrator_through_its_region_to_the_model(
    server: Server, collector: OtlpReceiver, tmp_path: Path
) -> None:
    """client -> orchestrator -> attempt at the region -> the region's gateway -> the model."""
    trace = "c" * 32
    orchestrated = Orchestrated(tmp_path, {"here": server})
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        environment.setenv("PENSTOCK_TELEMETRY_METRICS_EVERY_S", "0")
        orchestrated.start()
    try:
        orchestrated.wait_serving("tells", "here")
        _, said, request_id = invoke(orchestrated, traceparent=f"00-{trace}-{CALLER}-01")
        names = ("invoke tells", "region here", "runtime tells", "queue", "run")
        spans = spans_of(collector, request_id, *names)
        story = orchestrated.get(f"/admin/requests/{request_id}")
    finally:
        assert orchestrated.stop() == 0, orchestrated.log()
    chain = [spans[name] for name in ("invoke tells", "region here", "runtime tells", "run")]
    assert {one.trace_id for one in chain} == {trace}
    parents = [CALLER, *(one.span_id for one in chain)]
    assert [one.parent_id for one in chain] == parents[:-1]
    assert said["traceparent"] == f"00-{trace}-{chain[-1].span_id}-01"
    own = chain[0].attributes
    assert (own["penstock.region"], own["penstock.attempts"]) == ("here", 1)
    assert own["penstock.route.reason"] == chain[1].attributes["penstock.route.reason"]
    assert own["penstock.first_byte_ms"] > 0
    processes = {one.resource["service.instance.id"].split("/")[1] for one in chain}
    assert processes == {"orchestrator", "gateway"}
    assert (story["trace_id"], story["in_region"]["trace_id"]) == (trace, trace)


def test_metrics_are_pushed_under_the_names_of_the_page(
    server: Server, collector: OtlpReceiver
) -> None:
    invoke(server)

    def counted() -> bool:
        found = collector.metrics.get("penstock_requests")
        return found is not None and any(point.as_double >= 1 for point in found.sum.data_points)

    wait_until(counted, "a count of requests", 60)
    durations = collector.metrics["penstock_request_duration_seconds"].histogram
    assert durations.aggregation_temporality == 2  # cumulative
    for point in durations.data_points:
        assert sum(point.bucket_counts) == point.count
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    for name in collector.metrics:
        assert name in page
