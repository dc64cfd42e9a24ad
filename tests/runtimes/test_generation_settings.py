"""Sampling settings are checked once for all dialects, in the caller's own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import CallerError
from penstock.runtimes.generation.base import Sampling
from penstock.runtimes.generation.limits import checked
from penstock.runtimes.generation.wire import add_message, sampling_of
from penstock.runtimes.workers.wire import HEAD, read_messages


def test_what_is_not_given_is_the_default() -> None:
    assert checked({"temperature": None, "stop": None}) == Sampling()


def test_numbers_of_clients_with_one_kind_of_number_are_taken() -> None:
    sampling = checked({"tokens_new_max": 5.0, "temperature": 1, "stop": "x"})
    assert sampling == Sampling(tokens_new_max=5, temperature=1.0, stop=("x",))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tokens_new_max": 0}, "tokens_new_max is 0: it must be an integer from 1 to 1000000"),
        ({"tokens_new_max": 1.5}, "tokens_new_max is 1.5"),
        ({"tokens_new_max": True}, "tokens_new_max is True"),
        ({"tokens_new_max": 10**400}, "tokens_new_max is 1000"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": 10**400}, "temperature is 1000"),
        ({"temperature": "0.5"}, "temperature is '0.5'"),
        ({"top_p": 0}, "top_p is 0: it must be a number above 0 to 1"),
        ({"top_k": -1}, "top_k is -1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"presence_penalty": 2.5}, "it must be a number from -2 to 2"),
        ({"seed": 2**63}, "seed is"),
        ({"stop": ["a"] * 17}, "at most 16 strings"),
        ({"stop": [""]}, "stop is ''"),
        ({"stop": {"a": 1}}, "stop is {'a': 1}"),
        ({"logprobs": 21}, "from 0 to 20"),
        ({"ignore_eos": 1}, "ignore_eos is 1: it must be true or false"),
        ({"json_schema": "x" * 70_000}, "at most 65536 characters"),
        ({"tokens_new_min": 9, "tokens_new_max": 3}, "tokens_new_min is 9"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(given: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerError) as caught:
        checked(given)
    assert caught.value.code == "invalid-parameter"
    assert words in caught.value.message
    assert len(caught.value.message) < 300


def test_errors_speak_the_callers_dialect() -> None:
    with pytest.raises(CallerError) as caught:
        checked({"tokens_new_max": -3}, {"tokens_new_max": "max_new_tokens"})
    assert caught.value.message.startswith("max_new_tokens is -3")


class Bytes:
    """A stream that gives what it has."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int) -> bytes:
        part, self.data = self.data[:size], self.data[size:]
        return part


def test_settings_reach_the_engine_process_as_they_are() -> None:
    sampling = Sampling(
        tokens_new_max=3, temperature=0.5, stop=("a", "€"), seed=-1, json_schema="{}", logprobs=0
    )
    data = add_message(7, {"messages": []}, sampling) + add_message(8, "x", Sampling())
    messages = read_messages(Bytes(data + HEAD.pack(9, 1, 0) + b"cut"))
    first, second = (json.loads(payload) for _, _, payload in messages)
    assert (first["i"], first["prompt"]) == (7, {"messages": []})
    assert sampling_of(first["sampling"]) == sampling
    assert second["sampling"] == {}
