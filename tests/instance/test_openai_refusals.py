"""What OpenAI's API refuses is refused with its words, its code and the parameter's name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.api.openai.errors import translate
from penstock.errors import CallerError, from_dict
from penstock.instance.codecs.generation.calls import Served
from penstock.instance.codecs.generation.select import decode
from penstock.wire.frames import RequestMeta

SERVED = Served(name="shop", version="2", new_id=lambda: "7f3a", now_s=lambda: 1_700_000_000)
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
TEXT = {"prompt": "Hi"}


def ask(operation: str, body: dict[str, Any]) -> Any:
    meta = RequestMeta(door="openai", parameters=json.dumps({"operation": operation}))
    return decode(meta, json.dumps(body).encode(), SERVED)


def above(kind: str, name: str, value: Any, end: str) -> tuple[str, str]:
    return f"{kind}_above_max_value", (
        f"Invalid '{name}': {kind} above maximum value. Expected a value <= {end}, but got {value} "
        "instead."
    )


def below(kind: str, name: str, value: Any, end: str) -> tuple[str, str]:
    return f"{kind}_below_min_value", (
        f"Invalid '{name}': {kind} below minimum value. Expected a value >= {end}, but got "
        f"{value} instead."
    )


def kind(name: str, expected: str, got: str) -> tuple[str, str]:
    return "invalid_type", (
        f"Invalid type for '{name}': expected {expected}, but got {got} instead."
    )


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("temperature", 2.5, above("decimal", "temperature", 2.5, "2")),
        ("temperature", 3, above("decimal", "temperature", 3, "2")),
        ("temperature", -0.1, below("decimal", "temperature", -0.1, "0")),
        ("temperature", "hot", kind("temperature", "a decimal", "a string")),
        ("temperature", True, kind("temperature", "a decimal", "a boolean")),
        ("top_p", 1.01, above("decimal", "top_p", 1.01, "1")),
        ("top_p", -1, below("decimal", "top_p", -1, "0")),
        ("presence_penalty", 2.01, above("decimal", "presence_penalty", 2.01, "2")),
        ("presence_penalty", -3, below("decimal", "presence_penalty", -3, "-2")),
        ("frequency_penalty", 9, above("decimal", "frequency_penalty", 9, "2")),
        ("frequency_penalty", [], kind("frequency_penalty", "a decimal", "an array")),
        ("n", 0, below("integer", "n", 0, "1")),
        ("n", -1, below("integer", "n", -1, "1")),
        ("n", 129, above("integer", "n", 129, "128")),
        ("n", 1.5, kind("n", "an integer", "a decimal number")),
        ("max_tokens", 0, below("integer", "max_tokens", 0, "1")),
        ("max_tokens", -5, below("integer", "max_tokens", -5, "1")),
        ("max_tokens", {}, kind("max_tokens", "an integer", "an object")),
        ("seed", 2**63, above("integer", "seed", 2**63, str(2**63 - 1))),
    ],
)
@pytest.mark.parametrize(("operation", "body"), [("chat", CHAT), ("completions", TEXT)])
def test_a_number_out_of_its_range_is_refused_as_openai_does(
    operation: str, body: dict[str, Any], name: str, value: Any, told: tuple[str, str]
) -> None:
    with pytest.raises(CallerError) as caught:
        ask(operation, body | {name: value})
    # As it crosses from the instance to the door.
    answered = translate(from_dict(json.loads(json.dumps(caught.value.to_dict()))))
    code, message = told
    assert answered.status == 400
    assert json.loads(answered.body()) == {
        "error": {
            "message": message, "type": "invalid_request_error", "param": name, "code": code,
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "param", "code", "message"),
    [
        ({"max_completion_tokens": 0}, "max_completion_tokens", "integer_below_min_value",
         "Invalid 'max_completion_tokens': integer below minimum value. Expected a value >= 1, but "
         "got 0 instead."),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value",
         "Invalid 'top_logprobs': integer above maximum value. Expected a value <= 20, but got 21 "
         "instead."),
        ({"stop": ["a"] * 17}, "stop", "array_above_max_length",
         "Invalid 'stop': array too long. Expected a string or a list of at most 16 strings, but "
         "got an array with length 17 instead."),
        ({"stop": 7}, "stop", "invalid_value",
         "Invalid 'stop': 7. It must be a string or a list of at most 16 strings."),
        ({"messages": None}, "messages", "missing_required_parameter",
         "Missing required parameter: 'messages'."),
        ({"logit_bias": {"5": 3}}, "logit_bias", "parameter_unsupported",
         "logit_bias is not supported: the engine does not have it"),
    ],
)  # fmt: skip
def test_what_chat_refuses_names_the_parameter(
    body: dict[str, Any], param: str, code: str, message: str
) -> None:
    with pytest.raises(CallerError) as caught:
        ask("chat", CHAT | body)
    answered = translate(caught.value)
    assert (answered.param, answered.code, answered.message) == (param, code, message)


@pytest.mark.parametrize("temperature", [0, 1, 2, 2.0])
def test_the_ends_of_a_range_are_in_it(temperature: float) -> None:
    asked = CHAT | {"temperature": temperature, "presence_penalty": -2, "frequency_penalty": 2}
    assert ask("chat", asked).sampling.temperature == temperature


def test_a_nucleus_of_nothing_is_the_likeliest_token() -> None:
    sampling = ask("chat", CHAT | {"top_p": 0}).sampling
    assert (sampling.top_p, sampling.top_k) == (1.0, 1)


def test_other_dialects_keep_their_own_ranges() -> None:
    """Engines sample hotter than OpenAI lets anybody ask."""
    body = json.dumps({"inputs": "x", "parameters": {"temperature": 5.0}}).encode()
    assert decode(RequestMeta(), body, SERVED).sampling.temperature == 5.0
