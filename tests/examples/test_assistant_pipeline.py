"""The assistant's aggregated stream, read by unmodified clients of three protocols."""

from __future__ import annotations

import http.client
import importlib.util
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.kit.polling import wait_until

from penstock.wire.oip_messages import ModelInferRequest, ModelStreamInferResponse

for package in ("faiss", "bm25s", "openvino_genai"):
    pytest.importorskip(package, reason="the example's requirements are not installed")

from tests.examples.assistant_site import (  # noqa: E402 - as above
    ASSISTANT,
    AssistantSite,
    Event,
    events_of,
    kinds_of,
    scripted,
    text_of,
)

pytestmark = [pytest.mark.system, pytest.mark.integration]

QUESTION = "a red tent under $200"
WHOLE = ["text", "mention", "text", "mention", "text"]
CARD = ["product", "image", "link"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AssistantSite]:
    """Two copies of the pipeline; a writer that names what it is shown."""
    folder = tmp_path_factory.mktemp("assistant")
    made = AssistantSite(folder, scripted(folder / "chat"), ASSISTANT / "embed", copies=2)
    yield made
    made.close()


@pytest.fixture
def catalogue(site: AssistantSite) -> Iterator[Any]:
    """The catalogue service, which a test may kill and make slow; whole again afterwards."""
    yield site.catalogue
    site.catalogue.kill()
    site.catalogue.start()
    wait_until(lambda: "product" in kinds_of(site.ask(QUESTION)), "cards again", 60)


def data_of(events: list[Event], kind: str) -> list[Any]:
    return [data for each, data in events if each == kind]


def test_text_cards_pictures_and_links_merge_into_one_stream(site: AssistantSite) -> None:
    events = site.ask(QUESTION)
    mentions = data_of(events, "mention")
    first, second = (each["title"] for each in mentions)
    assert text_of(events) == f"Take the {first}. Or else the {second} . Bye "
    assert [each["number"] for each in mentions] == [1, 2]
    kinds = [kind for kind, _ in events if kind != "text"]
    assert sorted(kinds) == sorted(["mention", *CARD] * 2 + ["done"])
    assert events[-1][1]["steps"]["details"] == "done"
    for mention, product in zip(mentions, data_of(events, "product"), strict=True):
        assert product["id"] == mention["id"]
        assert product["price_cents"] <= 20_000
        places = [
            events.index((kind, data))
            for kind, data in (("mention", mention), ("product", product))
        ]
        assert places == sorted(places)


def test_a_marker_that_comes_in_pieces_is_never_text(site: AssistantSite) -> None:
    assert "[" not in text_of(site.ask(QUESTION))


def test_pictures_and_pages_are_where_the_events_say(site: AssistantSite) -> None:
    events = site.ask(QUESTION)
    for address, kind in (
        (data_of(events, "image")[0]["url"], "image/svg+xml"),
        (data_of(events, "link")[0]["url"], "text/html"),
    ):
        host, _, path = address.removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request("GET", f"/{path}")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, f"{kind}; charset=utf-8")
        assert answer.read()
        connection.close()


def without_stock(events: list[Event]) -> list[Event]:
    """Stock is sold while the tests run; where cards fall between words may differ."""
    ordered = sorted(events, key=lambda event: event[0])
    return [
        (kind, {key: value for key, value in data.items() if key != "stock"})
        for kind, data in ordered
    ]


def by_sse(
    site: AssistantSite, request: dict[str, Any], endpoint: str = "assistant"
) -> list[Event]:
    connection = http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=30)
    body = json.dumps({**request, "stream": True})
    connection.request("POST", f"/endpoints/{endpoint}/invocations", body)
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/event-stream"
    events = list(events_of(iter(lambda: answer.read1(65_536), b"")))
    connection.close()
    return events


def by_grpc(
    site: AssistantSite, request: dict[str, Any], endpoint: str = "assistant"
) -> list[Event]:
    asked = ModelInferRequest(model_name=endpoint)
    tensor = asked.inputs.add(name="request", datatype="BYTES", shape=(1,))
    tensor.contents.bytes_contents.append(json.dumps(request).encode())
    events = []
    with grpc.insecure_channel(f"127.0.0.1:{site.server.grpc_port}") as channel:
        call = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=ModelStreamInferResponse.FromString,
        )
        for answer in call(iter([asked]), timeout=30):
            assert not answer.error_message
            made = answer.infer_response
            if made.outputs:
                kind, data = (
                    raw[4 : 4 + struct.unpack("<I", raw[:4])[0]] for raw in made.raw_output_contents
                )
                events.append((kind.decode(), json.loads(data)))
    return events


def test_three_protocols_carry_the_same_typed_events(site: AssistantSite) -> None:
    request = {"question": QUESTION}
    by_boto3 = without_stock(site.ask(QUESTION))
    assert without_stock(by_sse(site, request)) == by_boto3
    assert without_stock(by_grpc(site, request)) == by_boto3


def test_the_committed_models_say_the_same_in_three_protocols(site: AssistantSite) -> None:
    site.server.deploy("written", ASSISTANT / "chat")
    site.deploy("real", CHAT_ENDPOINT="written")
    try:
        request = {"question": "I need a blue tent under $200"}
        answers = [
            site.ask(request["question"], endpoint="real"),
            by_sse(site, request, "real"),
            by_grpc(site, request, "real"),
        ]
        for events in answers:
            [title, *_] = [each["title"] for each in data_of(events, "product")]
            assert title.endswith("tent")
            assert title in text_of(events)
            assert data_of(events, "mention") == data_of(answers[0], "mention")
            assert text_of(events) == text_of(answers[0])
            assert events[-1][0] == "done"
    finally:
        for name in ("real", "written"):
            site.server.client("sagemaker").delete_endpoint(EndpointName=name)


def test_openais_messages_are_understood_and_the_text_is_the_message(site: AssistantSite) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    body = json.dumps({"model": "assistant", "messages": messages}).encode()
    status, answer = site.server.post("/v1/chat/completions", body)
    assert status == 200, answer
    made = json.loads(answer)
    assert made["choices"][0]["message"]["content"] == text_of(site.ask(QUESTION))
    assert [each["event"] for each in made["pipeline_events"]][-1] == "done"


def test_a_dead_catalogue_leaves_the_text_whole_and_is_told_once(
    site: AssistantSite, catalogue: Any
) -> None:
    catalogue.kill()
    events = site.ask(QUESTION)
    others = [kind for kind in kinds_of(events) if kind not in ("text", "mention")]
    assert others == ["notice", "done"]
    assert "Bye" in text_of(events)
    [notice] = data_of(events, "notice")
    assert notice == {
        "step": "details",
        "message": "Prices, pictures and links are missing: the catalogue does not answer.",
        "reason": "step-unavailable",
    }
    assert events[-1][1]["steps"]["details"] == "step-unavailable"


def test_a_slow_catalogue_is_waited_for_no_longer_than_its_deadline(
    site: AssistantSite, catalogue: Any
) -> None:
    catalogue.kill()
    catalogue.start(delay_s=30)

    def late() -> list[Event] | None:
        """A channel that was refused a moment ago tries again only after a while."""
        events = site.ask(QUESTION)
        notices = data_of(events, "notice")
        return events if notices and notices[0]["reason"] == "deadline-passed" else None

    events = wait_until(late, "the deadline", 60)
    assert kinds_of(events) == [*WHOLE, "notice", "done"]


def test_a_catalogue_that_is_late_within_its_deadline_still_fills_the_cards(
    site: AssistantSite, catalogue: Any
) -> None:
    catalogue.kill()
    catalogue.start(delay_s=0.3)

    def filled() -> list[Event] | None:
        events = site.ask(QUESTION)
        return events if data_of(events, "product") else None

    events = wait_until(filled, "cards", 60)
    assert kinds_of(events) == [*WHOLE, *CARD, *CARD, "done"]


def test_without_its_models_the_search_by_words_answers(site: AssistantSite) -> None:
    site.deploy("alone", EMBED_ENDPOINT="nobody", CHAT_ENDPOINT="nobody")
    events = site.ask(QUESTION, endpoint="alone")
    assert [notice["step"] for notice in data_of(events, "notice")] == ["vector", "answer"]
    titles = [each["title"] for each in data_of(events, "mention")]
    assert len(titles) == 4
    assert text_of(events) == "Here is what the shop has:" + "".join(f" {each}" for each in titles)
    assert len(data_of(events, "product")) == 4
    site.server.client("sagemaker").delete_endpoint(EndpointName="alone")


def test_a_follow_up_keeps_the_products_that_were_named(site: AssistantSite) -> None:
    first = site.ask(QUESTION)
    history = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": text_of(first)},
    ]
    second = site.ask("Which of them is cheaper?", history)
    named = [each["id"] for each in data_of(first, "mention")]
    assert [each["id"] for each in data_of(second, "mention")] == named


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({}, "question"),
        ({"question": "  "}, "question"),
        ({"question": "x" * 2001}, "2001 characters"),
        ({"question": "x", "messages": [1]}, "messages are a list"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "question"),
    ],
)
def test_a_request_without_a_question_is_told_what_to_send(
    site: AssistantSite, request_: dict[str, Any], code: str
) -> None:
    status, body = site.server.post(
        "/endpoints/assistant/invocations", json.dumps(request_).encode()
    )
    assert status == 424
    answer = json.loads(body)
    assert answer["OriginalStatusCode"] == 400
    assert code in answer["OriginalMessage"]


def test_a_reader_who_leaves_ends_every_branch(site: AssistantSite) -> None:
    for _ in range(6):
        connection = http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=30)
        body = json.dumps({"question": "an endless red tent", "stream": True})
        connection.request("POST", "/endpoints/assistant/invocations", body)
        assert connection.getresponse().read1(1)
        connection.close()
    wait_until(lambda: site.outstanding() == 0, "nothing is left", 60)


def test_the_descriptors_are_those_of_the_proto(tmp_path: Path) -> None:
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("grpcio-tools is not installed")
    from grpc_tools import protoc

    made = tmp_path / "made.binpb"
    folder = ASSISTANT / "service"
    assert not protoc.main(
        ["protoc", f"-I{folder}", "--include_imports", f"--descriptor_set_out={made}",
         str(folder / "catalogue.proto")]
    )  # fmt: skip
    assert made.read_bytes() == (ASSISTANT / "pipeline" / "catalogue.binpb").read_bytes()
