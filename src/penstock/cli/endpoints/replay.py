"""`penstock replay`: captured calls, sent again to an endpoint, and its answers beside the captured
ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.endpoints.replay_report import Replayed, ReplayReport, html_page, text_report
from penstock.cli.output import note, print_json
from penstock.core.jobs.spec import TransformInput
from penstock.core.rollout.agreement import WORSE, AgreementSpec
from penstock.core.rollout.agreement_words import agreement_of
from penstock.core.rollout.comparison import agree
from penstock.core.rollout.scorer import question, scored
from penstock.core.rollout.stream_document import document
from penstock.errors import CallerError, PenstockError
from penstock.records.objects.objects import list_objects
from penstock.records.objects.sources import open_object
from penstock.wire.capture_lines import CapturedCall, read

_TELLS_EVERY_S: Final = 5.0
#: Bytes. A longer line is no captured call that a server would take again.
_LINE_MAX: Final = 128 << 20


def replay(
    capture: Annotated[
        str, typer.Argument(help="Folder of captured calls: a path, file:// or s3://.")
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to", help="Endpoint that gets them.", autocompletion=options.endpoint_names
        ),
    ],
    *,
    like: Annotated[
        str,
        typer.Option("--like", help="How answers are compared: 'scores tolerance=0.01'."),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most calls.")] = 10_000,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=256, help="Calls at once.")
    ] = 4,
    rate: Annotated[
        float, typer.Option("--rate", min=0.0, help="Most calls per second; 0: as they go.")
    ] = 0.0,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also writes the report as a page, with plots.")
    ] = None,
    server: options.ReportOptions = options.REPORT,
) -> None:
    """Send captured calls to an endpoint again, and compare its answers with the captured ones.

    Ends with status 1 if its answers are surely worse than --like allows.
    """
    spec = agreement_of(like)
    report = ReplayReport(capture=capture, endpoint=to, spec=spec)
    client = server.client()
    for endpoint in filter(None, (to, spec.scorer)):  # one that is missing fails no call
        client.sagemaker("DescribeEndpoint", EndpointName=endpoint)
    told = time.monotonic()
    for done in _sent(client, report, _calls(capture, limit, report), concurrency, rate):
        report.add(done)
        if time.monotonic() - told > _TELLS_EVERY_S:
            told = time.monotonic()
            note(f"{report.sent} calls: {report.words()}")
    if not report.sent:
        raise CallerError(
            "capture-empty",
            f"there is no captured call with a request below {capture}",
            hint="Give the folder that DataCaptureConfig names, or one below it; calls are captured"
            " with their requests where CaptureOptions has Input.",
        )
    if html is not None:
        html.write_text(html_page(report))
    if server.json_:
        print_json(report.snapshot())
    else:
        text_report(report)
        if html is not None:
            note(f"the page is {html}")
    if report.verdict().verdict == WORSE:
        raise typer.Exit(1)


def _calls(capture: str, limit: int, report: ReplayReport) -> Iterator[CapturedCall]:
    """In the order of files' names, so of their times. What is no captured call is counted."""
    uri = capture if "://" in capture else Path(capture).resolve().as_uri()
    settings = ArtifactSettings()
    found = 0
    for one in list_objects(TransformInput(uri=uri.rstrip("/") + "/"), settings):
        if not one.key.endswith(".jsonl"):
            continue
        with open_object(one, settings) as content:
            for text in _lines(content.chunks(0, one.size)):
                try:
                    call = read(text)
                except ValueError:
                    report.unreadable += 1
                    continue
                if call.request is None:
                    report.without_request += 1
                    continue
                yield call
                found += 1
                if found >= limit:
                    return


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line.strip())
        if len(rest) > _LINE_MAX:
            rest = b""
    if rest.strip():
        yield rest


def _sent(
    client: Client,
    report: ReplayReport,
    calls: Iterator[CapturedCall],
    concurrency: int,
    rate: float,
) -> Iterator[Replayed]:
    """Each call with what became of it. `report`: where to it is sent, and how it is compared."""
    with ThreadPoolExecutor(concurrency) as pool:
        under_way: set[Future[Replayed]] = set()
        due = time.monotonic()
        for call in calls:
            if rate:
                time.sleep(max(due - time.monotonic(), 0.0))
                due = max(due, time.monotonic() - 1.0) + 1.0 / rate
            under_way.add(pool.submit(_asked, client, report.endpoint, report.spec, call))
            if len(under_way) >= concurrency:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        for one in under_way:
            yield one.result()


def _asked(client: Client, endpoint: str, spec: AgreementSpec, call: CapturedCall) -> Replayed:
    headers = {"Content-Type": call.request_type} if call.request_type else {}
    if call.answer_type:
        headers["Accept"] = call.answer_type
    if call.custom_attributes:
        headers["X-Amzn-SageMaker-Custom-Attributes"] = call.custom_attributes
    assert call.request is not None
    began = time.monotonic()
    try:
        answer, _ = client.invoke(endpoint, call.request, headers)
    except PenstockError as error:
        return Replayed(call, None, error, time.monotonic() - began, None)
    took_s = time.monotonic() - began
    old, new = call.answer, answer
    if old is None:
        return Replayed(call, answer, None, took_s, None)
    if old != new and (call.answer_type or "").startswith("text/event-stream"):
        old, new = document(old), document(new)
    if not spec.scorer or old == new:
        return Replayed(call, answer, None, took_s, agree(old, new, spec))
    asked = question(call.request, old, new)
    try:
        said, _ = client.invoke(spec.scorer, asked, {"Content-Type": "application/json"})
        return Replayed(call, answer, None, took_s, scored(said), scored=True)
    except PenstockError as error:
        return Replayed(call, answer, None, took_s, None, scorer_error=error)
