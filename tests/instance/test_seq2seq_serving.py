"""An encoder-decoder model behind a real instance: bodies, parameters, errors, cancellation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import seq2seq_models as tiny
from tests.kit.instances import FrameClient, instance

from penstock.wire import frames

JSON = "application/json"
SOURCES = tiny.SOURCES[2:5]
TEXTS = [" ".join(f"w{token}" for token in source) for source in SOURCES]


def words(tokens: list[int]) -> str:
    return " ".join(f"w{token}" for token in tokens if token > 2)


def expected(name: str) -> list[dict[str, str]]:
    return [{"generated_text": words(each)} for each in tiny.answers()["t5"][name][2:5]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameClient]:
    folder = tmp_path_factory.mktemp("seq2seq")
    tiny.write_artifact(folder / "model", rows_max=4, tokens_new_max=400)
    with instance(folder) as running:
        client = running.client()
        loaded = client.load(1, folder / "model")
        assert "description" in loaded, loaded
        client.description = loaded["description"]  # type: ignore[attr-defined]
        yield client
        client.close()


def ask(served: FrameClient, inputs: Any, **parameters: Any) -> Any:
    body = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    return served.invoke(1, body, content_type=JSON)


def test_the_description_names_texts_in_and_out(served: FrameClient) -> None:
    description: dict[str, Any] = served.description  # type: ignore[attr-defined]
    assert description["task"] == "text2text-generation"
    assert description["runtime"] == "seq2seq"
    assert description["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert description["outputs"] == [
        {"name": "generated_text", "datatype": "BYTES", "shape": [-1]}
    ]


def test_a_text_is_answered_as_the_hugging_face_toolkit_does(served: FrameClient) -> None:
    assert ask(served, TEXTS[1], max_new_tokens=20).json == expected("greedy")[1:2]


def test_texts_of_one_request_keep_their_order(served: FrameClient) -> None:
    assert ask(served, TEXTS, max_new_tokens=20).json == expected("greedy")
    many = ask(served, TEXTS * 5, max_new_tokens=20)
    assert many.json == expected("greedy") * 5


def test_beams_and_lengths_are_parameters(served: FrameClient) -> None:
    assert ask(served, TEXTS, **tiny.REQUESTS["beams"]).json == expected("beams")
    assert ask(served, TEXTS, **tiny.REQUESTS["beams-never"]).json == expected("beams-never")
    assert ask(served, TEXTS, **tiny.REQUESTS["greedy-eleven"]).json == expected("greedy-eleven")


def test_open_inference_protocol_takes_and_gives_bytes(served: FrameClient) -> None:
    body = {
        "inputs": [{"name": "text", "shape": [3], "datatype": "BYTES", "data": TEXTS}],
        "parameters": {"max_new_tokens": 20, "some_clients_own": 1},
    }
    answer = served.invoke(1, json.dumps(body).encode(), content_type=JSON, door="oip").json
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("generated_text", "BYTES", [3])
    assert output["data"] == [each["generated_text"] for each in expected("greedy")]


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": 401}, "from 1 to 400"),
        ({"max_new_tokens": "many"}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"max_new_tokens": 5, "min_new_tokens": 6}, "min_new_tokens"),
        ({"num_beams": 5}, "from 1 to 4"),
        ({"num_beams": -1}, "num_beams"),
        ({"length_penalty": 1e9}, "length_penalty"),
        ({"early_stopping": "soon"}, "early_stopping"),
        ({"do_sample": True}, "do_sample"),
        ({"temperature": 0.7}, "temperature"),
        ({"max_lenght": 5}, "max_lenght"),
        ({"max_length": 5}, "max_new_tokens"),
    ],
)
def test_impossible_parameters_are_named(
    served: FrameClient, parameters: dict[str, Any], named: str
) -> None:
    error = ask(served, TEXTS[0], **parameters).error
    assert (error["code"], error["original_status"]) == ("bad-parameter", 400)
    assert named in error["message"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"inputs": []}', "bad-input"),
        (b'{"inputs": ""}', "empty-text"),
        (b'{"inputs": [1]}', "bad-input"),
        (b'{"inputs": {"text": "a"}}', "bad-input"),
        (b'{"inputs": "w3", "parameters": [1]}', "bad-input"),
        (b"{", "bad-json"),
    ],
)
def test_bodies_without_texts_are_refused(served: FrameClient, body: bytes, code: str) -> None:
    error = served.invoke(1, body, content_type=JSON).error
    assert (error["code"], error["original_status"]) == (code, 400)


def test_a_cancelled_request_leaves_its_row_to_others(served: FrameClient) -> None:
    """Four rows are held by answers of 400 tokens; cancelled, they make room for the next.

    On a machine that pauses us for long they are through before we cancel: then once more.
    """
    body = json.dumps(
        {"inputs": TEXTS[0], "parameters": {"max_new_tokens": 400, "min_new_tokens": 400}}
    ).encode()
    answered: set[int] = set()
    for _ in range(10):
        held = [served.send(1, body, content_type=JSON) for _ in range(4)]
        served.socket.sendall(b"".join(frames.encode(frames.CANCEL, one, b"") for one in held))
        assert ask(served, TEXTS[1], max_new_tokens=20).json == expected("greedy")[1:2]
        answered = set(held) & set(served.answers)
        if not answered:
            break
    assert not answered


def test_a_deadline_is_kept_between_steps(served: FrameClient) -> None:
    """400 tokens take longer than 30 ms; what is late is not computed to its end."""
    body = json.dumps(
        {"inputs": TEXTS, "parameters": {"max_new_tokens": 400, "min_new_tokens": 400}}
    ).encode()
    ident = served.send(1, body, deadline_ms=30, content_type=JSON)
    frame = served.answer(ident)
    assert frame.kind == frames.ERROR
    error = json.loads(frames.decode_reply(frame.payload, frame.meta_bytes).body)
    assert error["family"] == "not-now"
    assert error["code"] in ("deadline-passed", "deadline-cannot-be-met")


def test_a_damaged_decoder_is_an_error_of_loading(served: FrameClient, tmp_path: Path) -> None:
    tiny.write_artifact(tmp_path / "model")
    weights = tmp_path / "model" / "decoder.bin"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    answer = served.load(2, tmp_path / "model")
    assert answer["error"]["code"] == "model-file-invalid"
    (tmp_path / "other").mkdir()
    description = tiny.write_artifact(tmp_path / "other")
    assert description.generation is not None
    (tmp_path / "other" / description.generation.encoder_file).unlink()
    answer = served.load(3, tmp_path / "other")
    assert answer["error"]["code"] == "artifact-incomplete"


def test_weights_that_are_no_numbers_fail_their_request_alone(tmp_path: Path) -> None:
    from penstock.clock import SystemClock
    from penstock.runtimes.seq2seq.decoding import DecodeLoop, DecodingJob
    from penstock.runtimes.seq2seq.model import Seq2SeqModel
    from penstock.runtimes.seq2seq.request import GenerationRequest

    description = tiny.write_artifact(tmp_path)
    model = Seq2SeqModel(tiny.context(tmp_path, description))
    loop = DecodeLoop(model, SystemClock(), start_id=0, eos_ids=(1,))
    answers: dict[int, Any] = {}
    request = GenerationRequest(max_new_tokens=20)
    for at, source in enumerate(SOURCES):
        loop.add(DecodingJob(source, request, lambda outcome, at=at: answers.update({at: outcome})))
    loop.turn()
    model.rows.cross[:, 1] = np.nan
    while loop.busy:
        loop.turn()
    assert answers[1].code == "not-a-number"
    assert answers[0] == tiny.answers()["t5"]["greedy"][2]
    assert answers[2] == tiny.answers()["t5"]["greedy"][4]
