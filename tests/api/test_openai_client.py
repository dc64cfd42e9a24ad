"""The unmodified `openai` package, in an environment of its own, against a gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.api.door_site import DoorSite, at_door
from tests.api.stream_fakes import MODEL, streaming, whole
from tests.environments import python_of

from penstock.errors import ModelError
from penstock.wire import frames

pytestmark = pytest.mark.integration

TOUR = Path(__file__).parent / "openai_tour.py"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def event(**fields: Any) -> bytes:
    common = {"id": "x", "created": 1, "model": "echo"}
    return b"data: " + orjson.dumps(common | fields) + b"\n\n"


def delta(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return event(object="chat.completion.chunk", choices=[choice])


def text(piece: str) -> bytes:
    choice = {"index": 0, "text": piece, "finish_reason": None, "logprobs": None}
    return event(object="text_completion", choices=[choice])


def response_event(number: int, piece: str) -> bytes:
    data = {"type": "response.output_text.delta", "sequence_number": number, "delta": piece}
    return b"event: response.output_text.delta\ndata: " + orjson.dumps(data) + b"\n\n"


def model(connection: Any, ident: int, invoke: frames.Invoke) -> None:
    """Answers as an engine would in each of the protocol's forms."""
    asked = orjson.loads(invoke.body)
    meta = frames.decode_request_meta(invoke.meta)
    operation = orjson.loads(meta.parameters or "{}")["operation"]
    done = b"data: [DONE]\n\n"
    if operation == "embeddings":
        data = [
            # 1.0 and -2.0 as float32: the client asks for base64 unless it is told not to.
            {"object": "embedding", "index": at, "embedding": "AACAPwAAAMA="}
            for at in range(len(asked["input"]))
        ]
        assert asked["encoding_format"] == "base64"
        body = {"object": "list", "data": data, "model": "echo", "usage": USAGE}
        whole(orjson.dumps(body))(connection, ident, invoke)
    elif operation == "completions":
        streaming(text("to"), text("gether"), done)(connection, ident, invoke)
    elif operation == "responses":
        error = ModelError("stream-broken", "it ended") if asked["model"] == "break" else None
        pieces = (response_event(0, "Hel"), response_event(1, "lo"))
        streaming(*pieces, error=error)(connection, ident, invoke)
    elif asked.get("stream"):
        error = ModelError("stream-broken", "it ended") if asked["model"] == "break" else None
        pieces = (delta("Hel"), delta("lo"), *(() if error else (done,)))
        streaming(*pieces, error=error)(connection, ident, invoke)
    else:
        message = {"role": "assistant", "content": "Hello"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {
            "id": "x", "object": "chat.completion", "created": 1, "model": "echo",
            "choices": [choice], "usage": USAGE,
        }  # fmt: skip
        whole(orjson.dumps(body))(connection, ident, invoke)


@at_door(model=MODEL)
async def test_the_openai_package_chats_streams_embeds_and_raises_its_own_errors(
    served: DoorSite,
) -> None:
    python = str(python_of("client-openai"))
    served.instance.on_invoke = model
    process = await asyncio.create_subprocess_exec(
        python, str(TOUR),
        f"http://127.0.0.1:{served.server.port}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, problem = await process.communicate()
    assert process.returncode == 0, problem.decode()[-2000:]
    assert orjson.loads(out) == {
        "models": ["echo"],
        "whole": ["Hello", 5],
        "stream": ["Hel", "lo"],
        "sagemaker": ["Hel", "lo"],
        "completions": ["to", "gether"],
        "embeddings": [[1.0, -2.0]] * 2,
        "responses": ["Hel", "lo"],
        "broken response": ["APIError", "stream_broken", "it ended"],
        "unknown": ["NotFoundError", 404, "model_not_found", True],
        "broken": ["APIError", "stream_broken", "it ended"],
        "refused": ["NotFoundError", 404, "model_not_found", True],
    }
