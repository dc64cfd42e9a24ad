"""Errors of strangers as bytes: for any exception whatsoever there are some, short and readable."""

from __future__ import annotations

import io
import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import (
    MESSAGE_CHARS_MAX,
    CallerError,
    ModelError,
    NotNowError,
    from_dict,
    plain,
)
from penstock.runtimes.generation import wire as generation_wire
from penstock.runtimes.python import batches
from penstock.runtimes.workers import wire
from penstock.runtimes.workers.failures import checked_answer, error_bytes, error_of, model_error

#: Every code point, lone surrogates among them.
ANY_TEXT = st.text(st.characters())
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=8,
)
KINDS = (ValueError, SystemExit, KeyboardInterrupt, KeyError, OSError, BaseException)


@given(kind=st.sampled_from(KINDS), arguments=st.lists(ANYTHING, max_size=3), note=ANY_TEXT)
def test_any_exception_becomes_bytes_that_any_reader_reads(
    kind: type[BaseException], arguments: list[Any], note: str
) -> None:
    error = kind(*arguments)
    error.add_note(note)
    data = error_bytes(error)
    assert len(data) < 64 << 10
    fields = orjson.loads(data)
    assert type(error).__name__ in fields["message"]  # OSError picks a class by its number
    assert error_of(data).to_dict() == fields


@given(texts=st.tuples(ANYTHING, ANYTHING, ANYTHING), numbers=st.tuples(ANYTHING, ANYTHING))
@example(texts=("code", "message", "hint"), numbers=(100, 100))  # no status of an error
def test_our_own_errors_are_plain_with_whatever_words(
    texts: tuple[Any, ...], numbers: tuple[Any, ...]
) -> None:
    for family in (CallerError, NotNowError, ModelError):
        error = family(
            texts[0], texts[1], hint=texts[2], status=numbers[0], retry_after_s=numbers[1]
        )
        for text in (error.code, error.message, error.hint, str(error)):
            text.encode()
        assert from_dict(orjson.loads(orjson.dumps(error.to_dict()))).to_dict() == error.to_dict()
        error.message, error.status, error.retry_after_s = texts[2], numbers[1], numbers[0]
        assert orjson.loads(error_bytes(error)) == orjson.loads(orjson.dumps(error.to_dict()))


@given(text=ANY_TEXT, chars_max=st.integers(1, 40))
def test_plain_text_is_short_and_keeps_what_it_can(text: str, chars_max: int) -> None:
    made = plain(text, chars_max)
    made.encode()
    assert len(made) <= chars_max
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert made == text or (len(text) > chars_max and made[:-1] == text[: chars_max - 1])


@given(data=st.binary())
def test_any_bytes_of_a_worker_stand_for_an_error(data: bytes) -> None:
    assert error_of(data).code


@given(fields=st.dictionaries(st.sampled_from(tuple(ModelError("", "").to_dict())), ANYTHING))
@example(fields={"status": 100})
def test_any_fields_of_a_worker_stand_for_an_error(fields: dict[str, Any]) -> None:
    assert 400 <= from_dict(fields).to_dict()["status"] <= 599


class Says(Exception):
    def __init__(self, say: Any) -> None:
        self.say = say

    def __str__(self) -> str:
        return self.say()  # type: ignore[no-any-return]


class Liar(ModelError):
    def to_dict(self) -> dict[str, Any]:
        raise SystemExit(4)


def raises(error: BaseException) -> Any:
    def say() -> str:
        raise error

    return say


@pytest.mark.parametrize(
    "error",
    [
        Says(raises(RuntimeError("no"))),
        Says(raises(SystemExit(1))),
        Says(raises(KeyboardInterrupt())),
        Says(lambda: 7),
        Says(lambda: "x" * (32 << 20)),
        Liar("code", "message"),
        type("Named", (Exception,), {"message": property(lambda self: self.nothing)})("text"),
        type("Status", (Exception,), {"status_code": property(raises(ValueError()))})("text"),
        BaseExceptionGroup("\udc80", [ValueError("\ud800"), SystemExit(1)]),
    ],
)
def test_exceptions_whose_own_code_fails_are_told_all_the_same(error: BaseException) -> None:
    fields = json.loads(error_bytes(error))
    assert fields["family"] == "model"
    assert 0 < len(fields["message"]) <= MESSAGE_CHARS_MAX


def test_an_error_that_carries_a_status_keeps_it() -> None:
    busy = type("Busy", (Exception,), {"status_code": 429})("slow down")
    told = model_error(busy)
    assert isinstance(told, ModelError)
    assert (told.message, told.original_status) == ("Busy: slow down", 429)


@given(body=ANYTHING, content_type=ANYTHING, attributes=ANYTHING)
def test_an_answer_is_bytes_or_an_error(body: Any, content_type: Any, attributes: Any) -> None:
    try:
        parts = checked_answer(body, content_type, attributes)
    except Exception as error:
        data = error_bytes(error)
        reply = (data, b"", b"", batches.ERROR)
    else:
        reply = (*parts, batches.WITH_ATTRIBUTES)
    (told,) = batches.unpack_replies(batches.pack_replies([reply])[8:], 1)
    assert (told.error is None) == (reply[3] != batches.ERROR)


@given(text=ANY_TEXT, number=st.floats(), deep=st.lists(st.dictionaries(ANY_TEXT, st.floats())))
def test_what_an_engine_says_ends_no_connection(text: str, number: float, deep: Any) -> None:
    message = generation_wire.message(generation_wire.EVENTS, {"x": text, "l": [number, deep]})
    told = orjson.loads(message[wire.HEAD.size :])
    assert len(told["x"]) == len(text)
    ((kind, _, payload),) = wire.read_messages(io.BytesIO(message))
    assert (kind, orjson.loads(payload)) == (generation_wire.EVENTS, told)


def test_a_worker_that_claims_a_huge_message_is_not_waited_for() -> None:
    decoder = wire.MessageDecoder()
    with pytest.raises(wire.TornMessageError):
        decoder.feed(wire.HEAD.pack(0xFFFFFFFF, batches.REPLIES, 1))
