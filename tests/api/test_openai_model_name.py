"""The model's name in a large body is found without building the rest, and is what JSON says."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.doors import door_site
from tests.kit.gateway import run
from tests.kit.http_clients import post
from tests.kit.polling import until
from tests.kit.streams import MODEL, whole

from penstock.api.openai.request import READ_AT_ONCE_BYTES, STEP_TOKENS, ModelScan

pytestmark = pytest.mark.loop(by=run)


def scanned(body: bytes) -> Any:
    scan = ModelScan(body)
    for _ in scan.steps():
        pass
    return scan.value


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["model", "a", 'm"', "\\", "}{"]), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.sampled_from(["model", "messages", 'mo"del', "\\model", "é"]), values))
def test_it_is_the_one_that_a_parser_finds(fields: dict[str, Any]) -> None:
    expected = fields.get("model")
    expected = expected if isinstance(expected, str) else None
    assert scanned(orjson.dumps(fields)) == expected
    assert scanned(orjson.dumps(fields, option=orjson.OPT_INDENT_2)) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a","model":"b"}', "b"),
        (b'{"model":"a","model":1}', None),
        (b'{"x":{"model":"inner"},"model":"outer"}', "outer"),
        (b'{"x":["model","inner"]}', None),
        (b'{"m\\u006fdel":"escaped"}', "escaped"),
        (b' {"x":"\\"model\\":","model" : "a"} \n', "a"),
    ],
)
def test_the_last_one_of_the_object_itself_counts(body: bytes, expected: str | None) -> None:
    assert scanned(body) == expected


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"model"', b'{"model":"a"', b'{"model":"a', b'{"a":1}}']
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"no JSON|no end|do not match"):
        scanned(body)


def test_a_large_body_is_read_in_steps() -> None:
    """Between two of them the loop serves others; the hostile shape has a token per byte."""
    tokens = 100_000
    body = b'{"x":[' + b"[" * (tokens // 2) + b"]" * (tokens // 2) + b'],"model":"a"}'
    scan = ModelScan(body)
    assert sum(1 for _ in scan.steps()) >= tokens // STEP_TOKENS
    assert scan.value == "a"


async def test_a_long_prompt_reaches_its_model_and_an_unfinished_one_is_refused() -> None:
    async with door_site(model=MODEL) as served:
        served.instance.on_invoke = whole(b"{}")
        prompt = "how do I write {braces} [and brackets] " * (READ_AT_ONCE_BYTES // 20)
        body = orjson.dumps({"prompt": prompt, "model": "echo"})
        for sent, status in ((body, 200), (body[:-1], 400)):
            client = await served.client()
            assert (await client.ask(post("/v1/completions", sent)))[0] == status
        await until(lambda: served.dispatcher.in_flight == 0)
