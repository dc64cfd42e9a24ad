"""Golden requests and replies of every dialect: literal bytes in, literal bytes out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import CallerError, ModelError
from penstock.instance.codecs.generation.calls import GeneratedAnswer, GenerationCall, Served
from penstock.instance.codecs.generation.select import decode
from penstock.runtimes.generation.base import Sampling
from penstock.wire.frames import RequestMeta
from penstock.wire.oip_messages import ModelInferRequest, ModelInferResponse

SERVED = Served(name="shop", version="2", new_id=lambda: "7f3a", now_s=lambda: 1_700_000_000)
#: Two tokens, the second of which is the end: what an engine process sends.
FIRST = {
    "i": 1,
    "t": [31],
    "x": "Hi",
    "p": 5,
    "c": 0,
    "s": 42,
    "l": [["Hi", -0.5, [[31, "Hi", -0.5]]]],
}
SECOND = {"i": 1, "t": [2], "z": [0], "f": "stop", "l": [["</s>", -0.25, []]]}


def call(body: Any, *, door: str = "runtime", asked: Any = None, **meta: Any) -> GenerationCall:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    parameters = None if asked is None else json.dumps(asked)
    return decode(RequestMeta(door=door, parameters=parameters, **meta), encoded, SERVED)


def streamed(made: GenerationCall, *events: Any) -> list[bytes]:
    assert made.writer.stream
    answer, chunks = GeneratedAnswer(), []
    for event in events:
        answer.add(event)
        chunks.append(made.writer.chunk(event, answer))
    return chunks


def whole(made: GenerationCall, *events: Any) -> bytes:
    assert not made.writer.stream
    answer = GeneratedAnswer()
    for event in events:
        answer.add(event)
    return made.writer.whole(answer)


def without_logprobs(event: Any) -> Any:
    return {key: value for key, value in event.items() if key != "l"}


def test_tgi_whole() -> None:
    made = call({"inputs": "Say", "parameters": {"max_new_tokens": 7, "return_full_text": False}})
    assert made.prompt == "Say"
    assert made.sampling == Sampling(tokens_new_max=7, stop_included=True)
    assert whole(made, FIRST, SECOND) == b'[{"generated_text":"Hi"}]'


def test_tgi_details() -> None:
    made = call({"inputs": "Say", "parameters": {"details": True, "stop": ["x"], "seed": 42}})
    assert made.sampling == Sampling(
        tokens_new_max=100, stop=("x",), stop_included=True, seed=42, logprobs=0
    )
    assert whole(made, FIRST, SECOND) == (
        b'[{"generated_text":"Hi","details":{"finish_reason":"eos_token","generated_tokens":2,'
        b'"seed":42,"prefill":[],"tokens":['
        b'{"id":31,"text":"Hi","logprob":-0.5,"special":false},'
        b'{"id":2,"text":"</s>","logprob":-0.25,"special":true}]}}]'
    )


def test_tgi_stream() -> None:
    for made in (
        call({"inputs": "Say", "stream": True}),
        call({"inputs": "Say"}, asked={"stream": True}),
    ):
        assert made.writer.content_type == "text/event-stream"
        assert streamed(made, FIRST, SECOND) == [
            b'data:{"index":1,"token":{"id":31,"text":"Hi","logprob":-0.5,"special":false},'
            b'"generated_text":null,"details":null}\n\n',
            b'data:{"index":2,"token":{"id":2,"text":"","logprob":-0.25,"special":true},'
            b'"generated_text":"Hi","details":{"finish_reason":"eos_token","generated_tokens":2,'
            b'"seed":42}}\n\n',
        ]


@pytest.mark.parametrize(
    ("parameters", "temperature", "top_p"),
    [
        ({}, 0.0, 1.0),
        ({"do_sample": True}, 1.0, 1.0),
        ({"top_p": 0.5}, 1.0, 0.5),
        ({"temperature": 0.3}, 0.3, 1.0),
        ({"do_sample": False, "temperature": 0.3}, 0.0, 1.0),
    ],
)
def test_tgi_is_greedy_unless_something_asks_for_a_choice(
    parameters: dict[str, Any], temperature: float, top_p: float
) -> None:
    sampling = call({"inputs": "x", "parameters": parameters}).sampling
    assert (sampling.temperature, sampling.top_p) == (temperature, top_p)


def test_plain_text_is_a_prompt() -> None:
    assert call("Grüße".encode(), content_type="text/plain; charset=utf-8").prompt == "Grüße"


CHAT = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}


def test_chat_whole() -> None:
    made = call(
        CHAT | {"max_completion_tokens": 9, "temperature": 0.5, "stop": "x", "user": "me"},
        door="openai", asked={"operation": "chat"},
    )  # fmt: skip
    assert made.prompt == {"messages": [{"role": "user", "content": "Hi"}]}
    assert made.sampling == Sampling(tokens_new_max=9, temperature=0.5, stop=("x",))
    assert whole(made, without_logprobs(FIRST), without_logprobs(SECOND)) == (
        b'{"id":"chatcmpl-7f3a","object":"chat.completion","created":1700000000,"model":"shop",'
        b'"choices":[{"index":0,"message":{"role":"assistant","content":"Hi","refusal":null},'
        b'"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":5,'
        b'"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}}'
    )


def test_tokens_of_the_cache_are_told_where_the_engine_knows_them() -> None:
    """A 0 would say that nothing was cached."""
    untold = {key: value for key, value in FIRST.items() if key != "c"}
    made = call(CHAT, door="openai", asked={"operation": "chat"})
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    assert json.loads(whole(made, untold, SECOND))["usage"] == usage
    several = call(CHAT, door="openai", asked={"operation": "chat"})
    answer = json.loads(whole(several, untold, FIRST | {"n": 1}, SECOND))
    assert "prompt_tokens_details" not in answer["usage"], "of one of two prompts it is not known"
    made = call({"input": "Hi"}, door="openai", asked={"operation": "responses"})
    details = json.loads(whole(made, untold, SECOND))["usage"]["input_tokens_details"]
    assert details == {"cached_tokens": None}


def test_chat_stream_with_usage_and_logprobs() -> None:
    settings = {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True}
    made = call(CHAT | settings | {"top_logprobs": 1})
    head = (
        b'data: {"id":"chatcmpl-7f3a","object":"chat.completion.chunk","created":1700000000,'
        b'"model":"shop","choices":['
    )
    assert made.sampling.logprobs == 1
    assert streamed(made, FIRST, SECOND) == [
        head + b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
        b'"finish_reason":null}],"usage":null}\n\n'
        + head + b'{"index":0,"delta":{"content":"Hi"},"logprobs":{"content":[{"token":"Hi",'
        b'"logprob":-0.5,"bytes":[72,105],"top_logprobs":[{"token":"Hi","logprob":-0.5,'
        b'"bytes":[72,105]}]}]},"finish_reason":null}],"usage":null}\n\n',
        head + b'{"index":0,"delta":{"content":""},"logprobs":{"content":[{"token":"</s>",'
        b'"logprob":-0.25,"bytes":[60,47,115,62],"top_logprobs":[]}]},"finish_reason":null}],'
        b'"usage":null}\n\n'
        + head + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}\n\n'
        + head + b'],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,'
        b'"prompt_tokens_details":{"cached_tokens":0}}}\n\ndata: [DONE]\n\n',
    ]  # fmt: skip


OTHER = {"i": 1, "n": 1, "t": [32], "x": "Yo", "s": 43}
OTHER_END = {"i": 1, "n": 1, "t": [2], "g": "length"}


def test_chat_with_several_answers() -> None:
    made = call(CHAT | {"n": 2}, door="openai", asked={"operation": "chat"})
    assert made.sampling == Sampling(temperature=1.0, sequences=2)
    events = [without_logprobs(each) for each in (FIRST, OTHER, OTHER_END, SECOND)]
    answered = json.loads(whole(made, *events))
    assert [
        (each["index"], each["message"]["content"], each["finish_reason"])
        for each in answered["choices"]
    ] == [(0, "Hi", "stop"), (1, "Yo", "length")]
    assert answered["usage"]["prompt_tokens"] == 5
    assert answered["usage"]["completion_tokens"] == 4
    made = call(CHAT | {"n": 2, "stream": True}, door="openai", asked={"operation": "chat"})
    lines = b"".join(streamed(made, *events)).split(b"\n\n")
    assert lines.pop(-2) == b"data: [DONE]"
    choices = [json.loads(line[6:])["choices"][0] for line in lines if line]
    assert [(each["index"], each["delta"], each["finish_reason"]) for each in choices] == [
        (0, {"role": "assistant", "content": ""}, None),
        (0, {"content": "Hi"}, None),
        (1, {"role": "assistant", "content": ""}, None),
        (1, {"content": "Yo"}, None),
        (1, {}, "length"),
        (0, {}, "stop"),
    ]


def test_completions_with_several_answers() -> None:
    asked = {"prompt": "Say", "n": 2, "best_of": 2}
    made = call(asked, door="openai", asked={"operation": "completions"})
    answered = json.loads(whole(made, FIRST, OTHER, OTHER_END, SECOND))
    assert [(each["index"], each["text"]) for each in answered["choices"]] == [(0, "Hi"), (1, "Yo")]


def test_completions_whole_and_stream() -> None:
    asked = {"prompt": ["Say"], "logprobs": 1}
    made = call(asked, door="openai", asked={"operation": "completions"})
    assert made.prompt == "Say"
    assert made.sampling == Sampling(tokens_new_max=16, temperature=1.0, logprobs=1)
    assert json.loads(whole(made, FIRST, SECOND)) == {
        "id": "cmpl-7f3a", "object": "text_completion", "created": 1_700_000_000, "model": "shop",
        "choices": [{
            "index": 0, "text": "Hi", "finish_reason": "stop",
            "logprobs": {
                "tokens": ["Hi", "</s>"], "token_logprobs": [-0.5, -0.25],
                "top_logprobs": [{"Hi": -0.5}, {"</s>": -0.25}], "text_offset": [0, 2],
            },
        }],
        "usage": {
            "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }  # fmt: skip
    made = call({"prompt": [1, 2], "stream": True})
    assert made.prompt == [1, 2]
    head = (
        b'data: {"id":"cmpl-7f3a","object":"text_completion","created":1700000000,"model":"shop",'
        b'"choices":[{"index":0,"text":'
    )
    assert streamed(made, without_logprobs(FIRST), without_logprobs(SECOND)) == [
        head + b'"Hi","logprobs":null,"finish_reason":null}]}\n\n',
        head + b'"","logprobs":null,"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    ]


def test_triton_generate() -> None:
    body = {"text_input": "Say", "max_tokens": 5, "parameters": {"temperature": 0.5, "seed": 3}}
    made = call(body, door="oip", asked={"operation": "generate"})
    assert made.sampling == Sampling(tokens_new_max=5, temperature=0.5, seed=3)
    assert whole(made, FIRST, SECOND) == (
        b'{"model_name":"shop","model_version":"2","text_output":"Hi"}'
    )
    made = call(body | {"id": "a"}, door="oip", asked={"operation": "generate_stream"})
    head = b'data: {"model_name":"shop","model_version":"2","id":"a","text_output":'
    assert streamed(made, FIRST, SECOND) == [head + b'"Hi"}\n\n', head + b'""}\n\n']


def grpc_request(**inputs: tuple[str, list[Any]]) -> bytes:
    request = ModelInferRequest(model_name="shop", id="r1")
    fields = {"BYTES": "bytes_contents", "BOOL": "bool_contents", "INT32": "int_contents"}
    for name, (dtype, values) in inputs.items():
        tensor = request.inputs.add(name=name, datatype=dtype, shape=[len(values)])
        getattr(tensor.contents, fields[dtype]).extend(values)
    return bytes(request.SerializeToString())


def read_text(message: bytes) -> tuple[str, bool]:
    response = ModelInferResponse.FromString(message)
    assert (response.model_name, response.model_version, response.id) == ("shop", "2", "r1")
    (output,) = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("text_output", "BYTES", [1])
    (raw,) = response.raw_output_contents
    return raw[4:].decode(), response.parameters["triton_final_response"].bool_param


def test_triton_tensors_over_grpc() -> None:
    body = grpc_request(
        text_input=("BYTES", [b"Say"]), stream=("BOOL", [True]), max_tokens=("INT32", [4]),
        sampling_parameters=("BYTES", [b'{"temperature": 0.5, "stop": ["x"]}']),
    )  # fmt: skip
    made = call(body, door="oip-grpc", asked={"operation": "stream_infer"})
    assert made.prompt == "Say"
    assert made.sampling == Sampling(tokens_new_max=4, temperature=0.5, stop=("x",))
    assert [read_text(each) for each in streamed(made, FIRST, SECOND)] == [
        ("Hi", False), ("", True),
    ]  # fmt: skip
    body = grpc_request(text_input=("BYTES", [b"Say"]))
    for asked in ({"operation": "stream_infer"}, None):
        made = call(body, door="oip-grpc", asked=asked)
        assert read_text(whole(made, FIRST, SECOND)) == ("Hi", True)


def test_triton_tensors_over_http() -> None:
    tensors = [
        {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["Say"]},
        {"name": "max_tokens", "datatype": "INT32", "shape": [1, 1], "data": [4]},
    ]
    made = call({"inputs": tensors}, door="oip")
    assert made.sampling == Sampling(tokens_new_max=4)
    answer = json.loads(whole(made, FIRST, SECOND))
    assert answer["outputs"] == [
        {"name": "text_output", "datatype": "BYTES", "shape": [1], "data": ["Hi"]}
    ]


def test_a_schema_is_passed_on_from_each_dialect() -> None:
    schema = {"type": "object"}
    text = '{"type":"object"}'
    wrapped = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert call(CHAT | {"response_format": wrapped}).sampling.json_schema == text
    assert call(CHAT | {"response_format": {"type": "json_object"}}).sampling.json_schema == text
    grammar = {"type": "json", "value": schema}
    assert call({"inputs": "x", "parameters": {"grammar": grammar}}).sampling.json_schema == text
    body = {"text_input": "x", "guided_json": schema}
    made = call(body, door="oip", asked={"operation": "generate"})
    assert made.sampling.json_schema == text


@pytest.mark.parametrize(
    ("body", "door", "asked", "code"),
    [
        (CHAT | {"tools": [{}]}, "openai", {"operation": "chat"}, "parameter-unsupported"),
        ({"prompt": "x", "best_of": 2, "stream": True}, "openai", {"operation": "completions"},
         "parameter-unsupported"),
        (CHAT | {"stream_options": {"include_usage": True}}, "openai", {"operation": "chat"},
         "invalid-parameter"),
        (CHAT | {"top_logprobs": 2}, "openai", {"operation": "chat"}, "invalid-parameter"),
        (CHAT | {"stream": "yes"}, "openai", {"operation": "chat"}, "invalid-parameter"),
        (CHAT | {"response_format": {"type": "xml"}}, "openai", {"operation": "chat"},
         "invalid-parameter"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "openai",
         {"operation": "chat"}, "parameter-unsupported"),
        ({"prompt": ["a", 5]}, "openai", {"operation": "completions"}, "invalid-parameter"),
        ({"prompt": {"a": 1}}, "openai", {"operation": "completions"}, "invalid-parameter"),
        ({"input": "x"}, "openai", {"operation": "embeddings"}, "operation-unsupported"),
        ({"text_input": 5}, "oip", {"operation": "generate"}, "invalid-parameter"),
        ({"text_input": "x", "stream": True}, "oip", {"operation": "generate"},
         "parameter-unsupported"),
        ({"inputs": "x", "parameters": []}, "runtime", None, "invalid-parameter"),
        ({"inputs": "x", "parameters": {"typical_p": 0.5}}, "runtime", None,
         "parameter-unsupported"),
        ({"inputs": "x", "parameters": {"grammar": {"type": "regex", "value": "a"}}}, "runtime",
         None, "parameter-unsupported"),
        (grpc_request(stream=("BOOL", [True])), "oip-grpc", None, "invalid-parameter"),
        (grpc_request(text_input=("BYTES", [b"\xff"])), "oip-grpc", None, "bad-input"),
        (grpc_request(text_input=("BYTES", [b"a", b"b"])), "oip-grpc", None, "invalid-parameter"),
        (b"\xff", "oip-grpc", None, "bad-protobuf"),
    ],
)  # fmt: skip
def test_what_a_dialect_cannot_mean_is_refused(body: Any, door: str, asked: Any, code: str) -> None:
    with pytest.raises((CallerError, ModelError)) as caught:
        call(body, door=door, asked=asked)
    assert caught.value.code == code
