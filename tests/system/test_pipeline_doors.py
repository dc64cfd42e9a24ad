"""A pipeline behind a real gateway: it asks other endpoints, and every door tells its events."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EventStreamError
from tests.kit import model_files
from tests.kit.certificates import self_signed
from tests.kit.generation_models import write_model
from tests.kit.polling import wait_until
from tests.kit.python_models import pipeline
from tests.kit.servers import EXAMPLES, Server
from tests.system.test_access_system import Guarded
from tests.system.test_clients import client_python, tour

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")
pytestmark = [pytest.mark.system, pytest.mark.integration]

DECLARED = """
schema: 1
steps:
  - name: vector
    endpoint: {name: embedder, operation: embeddings}
    inputs: {input: "$request.messages[0].content"}
    emit: [{kind: vector, data: {numbers: "$piece.embeddings[0]"}}]
  - name: answer
    endpoint: {name: spoken, operation: chat, stream: true}
    inputs: {messages: $request.messages, max_tokens: 16, temperature: 0}
    needs: [vector]
    emit: [{kind: text, data: {text: $piece.text}, count: characters}]
  - name: card
    value: {id: p1, tags: [a, {b: null}], price: 1.5}
    emit: [{kind: product, after: {step: answer, position: 3}}]
  - name: late
    endpoint: {name: nobody}
    needs: [answer]
    fallback: {say: Nobody is there.}
"""
ENDLESS = """
schema: 1
requests_max: 16
steps:
  - name: answer
    endpoint: {name: spoken, operation: chat, stream: true}
    inputs: {messages: $request.messages, max_tokens: 450, temperature: 0, ignore_eos: true}
    emit: [{kind: text, data: {text: $piece.text}}]
  - name: numbers
    python: {function: numbers}
    inputs: {size: "$request.size?"}
    emit: [{kind: number}]
"""
NUMBERS = """
import time

def numbers(size):
    number = 0
    while True:
        number += 1
        time.sleep(0.01)  # what nobody reads is cut, and not before the tests have looked
        yield {"number": number, "padding": "x" * (size or 0)}
"""
BROKEN = """
schema: 1
steps:
  - name: talk
    python: {function: talk}
    emit: [{kind: text, data: {text: $piece}}]
"""
BREAKS = """
def talk():
    yield "So far"
    raise ValueError("no further")
"""
REQUEST: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
CARD = ["product", {"id": "p1", "tags": ["a", {"b": None}], "price": 1.5}]

Events = list[list[Any]]


@pytest.fixture(scope="module")
def assistant(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two copies of the pipeline and the models that it asks, in service; gone afterwards."""
    folder = tmp_path_factory.mktemp("pipeline")
    server.deploy("spoken", write_model(folder / "model"))
    server.deploy("embedder", model_files.embedder(folder / "embedder"))
    server.deploy("assistant", pipeline(folder / "assistant", DECLARED), count=2)
    server.deploy("endless", pipeline(folder / "endless", ENDLESS, NUMBERS))
    server.deploy("broken", pipeline(folder / "broken", BROKEN, BREAKS))
    yield "assistant"
    for name in ("assistant", "endless", "broken", "spoken", "embedder"):
        server.client("sagemaker").delete_endpoint(EndpointName=name)


def events_of(body: bytes) -> Events:
    """Server-sent events with a type."""
    events = []
    for block in body.decode().split("\n\n")[:-1]:
        kind, _, data = block.partition("\n")
        assert kind.startswith("event: ")
        assert data.startswith("data: ")
        events.append([kind[len("event: ") :], json.loads(data[len("data: ") :])])
    return events


def without_cuts(events: Events) -> Events:
    """Where one text ends and the next begins may differ from run to run; the order may not."""
    joined: Events = []
    for kind, data in events:
        if kind == "text" and joined and joined[-1][0] == "text":
            joined[-1] = ["text", {"text": joined[-1][1]["text"] + data["text"]}]
        else:
            joined.append([kind, data])
    return joined


def told(events: Events) -> Events:
    """Without the count of events, which cuts of the text change."""
    last = [events[-1][0], {"steps": events[-1][1]["steps"]}]
    return [*without_cuts(events)[:-1], last]


def whole(server: Server, name: str) -> Events:
    status, body = server.post(f"/endpoints/{name}/invocations", json.dumps(REQUEST).encode())
    assert status == 200, body
    return [[each["event"], each["data"]] for each in json.loads(body)["events"]]


def by_boto3(server: Server, name: str) -> Events:
    answer = server.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName=name, Body=json.dumps(REQUEST).encode(), ContentType="application/json"
    )
    assert answer["ContentType"] == "text/event-stream"
    return events_of(b"".join(part["PayloadPart"]["Bytes"] for part in answer["Body"]))


def test_a_pipeline_asks_endpoints_without_being_told_where_they_are(
    server: Server, assistant: str
) -> None:
    events = whole(server, assistant)
    said = told(events)
    assert said[0][0] == "vector"
    assert [kind for kind, _ in said] == ["vector", "text", "product", "text", "notice", "done"]
    assert CARD in said
    assert said[-2][1]["message"] == "Nobody is there."
    assert said[-1][1]["steps"] == {
        "vector": "done", "answer": "done", "card": "done", "late": "step-refused",
    }  # fmt: skip


def test_every_door_tells_the_same_typed_events(server: Server, assistant: str) -> None:
    expected = told(whole(server, assistant))
    assert told(by_boto3(server, assistant)) == expected
    body = json.dumps(REQUEST | {"stream": True}).encode()
    for path in (f"/endpoints/{assistant}/invocations", f"/v2/models/{assistant}/generate_stream"):
        status, answer = server.post(path, body)
        assert status == 200, answer
        assert told(events_of(answer)) == expected, path
    given = (assistant, json.dumps(REQUEST))
    grpc = f"127.0.0.1:{server.grpc_port}"
    seen = tour(client_python("tritonclient"), "triton_pipeline_tour.py", grpc, *given)
    assert told(seen["events"]) == expected


def test_the_openai_client_shows_the_text_and_finds_the_events_beside_it(
    server: Server, assistant: str
) -> None:
    expected = told(whole(server, assistant))
    text = "".join(data["text"] for kind, data in expected if kind == "text")
    given = (assistant, json.dumps(REQUEST))
    seen = tour(client_python("openai"), "openai_pipeline_tour.py", server.url, *given)
    assert seen["streamed"] == seen["whole"] == text
    beside = [each["event"] for each in seen["beside"]]
    assert beside == ["vector", "product", "notice", "done"]
    assert seen["beside"][1] == {"event": CARD[0], "data": CARD[1]}
    assert told([[each["event"], each["data"]] for each in seen["events"]]) == expected


def test_a_pipeline_that_breaks_says_why_as_each_protocol_does(
    server: Server, assistant: str
) -> None:
    """The text that was said stays; the error comes behind it, and never the word `done`."""
    told = {"code": "step-failed", "hint": "The traceback is in the instance's log."}
    told["message"] = "step 'talk': ValueError: no further"
    expected: Events = [["text", {"text": "So far"}], ["error", told]]
    answer = server.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
        EndpointName="broken", Body=b"{}"
    )
    pieces: list[bytes] = []
    parts = (part["PayloadPart"]["Bytes"] for part in answer["Body"])
    with pytest.raises(EventStreamError, match="ModelStreamError"):
        pieces.extend(parts)
    assert events_of(b"".join(pieces)) == expected
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/endpoints/broken/invocations", b'{"stream": true}')
    with pytest.raises(http.client.IncompleteRead) as caught:
        connection.getresponse().read()
    assert events_of(caught.value.partial) == expected
    connection.close()
    body = json.dumps({"model": "broken", "messages": [], "stream": True}).encode()
    _, answered = server.post("/v1/chat/completions", body)
    last = json.loads(answered.split(b"data: ")[-1])["error"]
    assert last["message"].startswith(told["message"])


def begin(server: Server, path: str, request: dict[str, Any]) -> http.client.HTTPConnection:
    """A stream that has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", path, json.dumps(request).encode())
    assert connection.getresponse().read1(1)
    return connection


@pytest.mark.parametrize(
    "path", ["invocations-response-stream", "invocations", "openai/v1/chat/completions"]
)
def test_a_client_that_leaves_ends_every_branch(server: Server, assistant: str, path: str) -> None:
    """Eight at once: none may still be on its way in the pipeline or at the endpoint it asks."""
    asked = REQUEST | {"stream": True}
    streams = [begin(server, f"/endpoints/endless/{path}", asked) for _ in range(8)]
    wait_until(lambda: server.outstanding("endless") == 8, "all are counted", 60)
    [copy] = server.copies("endless")
    story = server.get(f"/admin/endpoints/endless/copies/{copy['copy']}")["pipeline"]
    assert story["requests"] == 8
    states = [each["steps"]["numbers"]["state"] for each in story["oldest"].values()]
    assert states == ["running"] * 8
    for each in streams:
        each.close()
    wait_until(lambda: not server.outstanding("endless", "spoken"), "all gone", 60)
    assert told(by_boto3(server, assistant))[-1][0] == "done"


def test_a_client_that_does_not_read_holds_up_nobody(server: Server, assistant: str) -> None:
    """What it leaves unread is bounded: the gateway cuts it, and its branches end."""
    request = REQUEST | {"stream": True, "size": 200_000}
    silent = begin(server, "/endpoints/endless/invocations", request)
    assert told(by_boto3(server, assistant)) == told(whole(server, assistant))
    wait_until(lambda: not server.outstanding("endless", "spoken"), "it is cut", 60)
    silent.close()


ASKS_ECHO = """
schema: 1
steps:
  - name: said
    endpoint: {name: echo}
    inputs: {inputs: $request.question}
    emit: [{kind: said}]
"""


def test_pipelines_that_come_back_with_the_server_find_it_again(
    fresh_server: Server, tmp_path: Path
) -> None:
    """They start before the server listens, and are told where once it does."""
    fresh_server.deploy("echo", EXAMPLES / "echo" / "python")
    fresh_server.deploy("asks", pipeline(tmp_path / "asks", ASKS_ECHO))
    fresh_server.kill()
    fresh_server.start()
    for name in ("echo", "asks"):
        fresh_server.wait_in_service(name)

    def answered() -> Any:
        """In service again is what the record says; the copies follow."""
        path = "/endpoints/asks/invocations"
        status, body = fresh_server.post(path, b'{"question": "still there?"}')
        return status == 200 and json.loads(body)["events"]

    events = wait_until(answered, "an answer", 60)
    assert [each["event"] for each in events] == ["said", "done"]


def test_with_authentication_and_tls_the_platform_lets_its_own_pipelines_in(
    tmp_path: Path,
) -> None:
    cert, key = self_signed(tmp_path)
    folder = pipeline(
        tmp_path / "artifact",
        """
schema: 1
steps:
  - name: intent
    endpoint: {name: intent}
    inputs: {inputs: $request.question}
    emit: [{kind: intent, data: "$piece[0].label"}]
  - name: secrets
    python: {function: secrets}
    needs: [intent]
    emit: [{kind: secrets}]
""",
        """
import os

def secrets():
    return sorted(key for key in os.environ if key.startswith("PENSTOCK_"))
""",
    )
    site = Guarded(
        tmp_path, "--tls-cert", str(cert), "--tls-key", str(key), "--deploy", f"asks={folder}"
    )
    try:
        log = site.server.log
        wait_until(lambda: log().count("is in service") == 3, "in service", 60)
        answer = asked_over_tls(site, cert, {"question": "where is my order"})
        assert [each["event"] for each in answer["events"]] == ["intent", "secrets", "done"]
        assert answer["events"][0]["data"] == "order-status"
        assert answer["events"][1]["data"] == []
    finally:
        assert site.server.stop() == 0, site.server.log()


def asked_over_tls(site: Guarded, cert: Path, request: dict[str, Any]) -> Any:
    import ssl

    token, deadline = site.bearer_key["secret"], time.monotonic() + 15
    while True:
        connection = http.client.HTTPSConnection(
            "localhost", site.server.port, timeout=30,
            context=ssl.create_default_context(cafile=str(cert)),
        )  # fmt: skip
        headers = {"authorization": f"Bearer {token}"}
        connection.request(
            "POST", "/endpoints/asks/invocations", json.dumps(request).encode(), headers
        )
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status == 200:
            return json.loads(body)
        assert answer.status == 403, body  # a new key counts after two seconds
        assert time.monotonic() < deadline, body
        time.sleep(0.1)
