"""`penstock invoke --stream`: the answer appears while it is made, and a break is an error."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import orjson
import pytest
from tests.kit.doors import door_site
from tests.kit.gateway import run
from tests.kit.streams import OnInvoke, streaming, whole

from penstock.cli.endpoints.invoke import EventText
from penstock.errors import ModelError

TGI = [b'data:{"token":{"text":"Hel","special":false}}\n\n', b'data:{"token":{"text":"lo"}}\n\n']
SRC = Path(__file__).resolve().parents[2] / "src"


def invoked(on_invoke: OnInvoke, *options: str, name: str = "echo") -> tuple[int, bytes, str]:
    """Exit status, standard output and standard error of the command."""
    told: list[tuple[int, bytes, str]] = []

    async def main() -> None:
        async with door_site() as served:
            served.instance.on_invoke = on_invoke
            url = f"http://127.0.0.1:{served.server.port}"
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "penstock", "invoke", name, "{}", "--stream",
                "--url", url, *options,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(SRC)},
            )  # fmt: skip
            out, problem = await process.communicate()
            told.append((process.returncode or 0, out, problem.decode()))

    run(main)
    return told[0]


def test_the_text_of_the_tokens_is_printed_and_the_request_id_beside_it() -> None:
    status, out, beside = invoked(streaming(*TGI))
    assert (status, out) == (0, b"Hello")
    assert beside == "request 00000000-0000-4000-8000-000000000001\n"


def test_json_prints_each_piece_on_a_line() -> None:
    status, out, _ = invoked(streaming(b'{"a":1}', b"text", content_type="text/plain"), "--json")
    assert status == 0
    assert [orjson.loads(line) for line in out.splitlines()] == [
        {"piece": {"a": 1}},
        {"piece": "text"},
    ]


def test_an_answer_that_is_no_stream_is_printed_as_it_is() -> None:
    assert invoked(whole(b"\x00\xff", "application/x-npy"))[:2] == (0, b"\x00\xff")


def test_a_break_is_an_error_behind_what_came() -> None:
    error = ModelError("stream-broken", "the engine ended")
    status, out, beside = invoked(streaming(TGI[0], error=error))
    assert (status, out) == (1, b"Hel")
    assert "error[ModelStreamError]: the engine ended" in beside


def test_an_endpoint_that_is_unknown_is_told_as_without_a_stream() -> None:
    status, out, beside = invoked(whole(b""), name="nobody")
    assert (status, out) == (1, b"")
    assert "error[ValidationError]: Endpoint nobody" in beside


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([b'data:{"tok', b'en":{"text":"a"}}\n', b"\n"], "a"),
        ([b'data:{"token":{"text":"</s>","special":true}}\n\n'], ""),
        ([b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', b"data: [DONE]\n\n"], "a"),
        ([b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'], ""),
        ([b'data: {"choices":[{"text":"a"}]}\n\n'], "a"),
        (['data: {"choices":[{"text":"é"}]}\n'.encode()[:-6], b'\xa9"}]}\n'], "é"),
        ([b'data: {"error":{"message":"x"}}\n\n'], '{"error":{"message":"x"}}\n'),
        ([b"data: torn\n", b"event: x\n"], "data: torn\nevent: x\n"),
        ([b'data:{"token":{"text":"no line end"}}'], "no line end"),
    ],
)
def test_events_are_read_across_any_cut(pieces: list[bytes], text: str) -> None:
    reader = EventText()
    read = [reader.feed(piece) for piece in pieces]
    assert "".join(read) + reader.feed(b"", last=True) == text
