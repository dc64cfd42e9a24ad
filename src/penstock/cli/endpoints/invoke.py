"""`penstock invoke`: one InvokeEndpoint call from the shell, whole or streamed.

It also extracts the text of a streamed answer, for a person who watches it grow. It knows the two
forms in which models here stream: TGI's (`data:{"token":{"text":...}}`) and OpenAI's
(`data: {"choices":[...]}`). Anything else is shown unchanged.
"""

from __future__ import annotations

import codecs
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import options
from penstock.cli.client import Client
from penstock.cli.output import note, print_json
from penstock.cli.waiting import while_running
from penstock.errors import CallerError

_DATA = "data:"


class EventText:
    """Takes the bytes of a stream of events, split anywhere, and returns their text."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes, *, last: bool = False) -> str:
        """The text of the lines that `data` completes."""
        lines = (self._rest + self._decode(data, last)).split("\n")
        self._rest = "" if last else lines.pop()
        return "".join(_text_of(line) for line in lines)


def _text_of(line: str) -> str:
    if not line.strip():
        return ""
    if not line.startswith(_DATA):
        return f"{line}\n"
    payload = line[len(_DATA) :].strip()
    if payload == "[DONE]":
        return ""
    try:
        event: Any = json.loads(payload)
    except ValueError:
        return f"{line}\n"
    text = _token(event) if isinstance(event, dict) else None
    return f"{payload}\n" if text is None else text


def _token(event: dict[str, Any]) -> str | None:
    """The piece of the answer in an event; None if it has neither form."""
    token = event.get("token")
    if isinstance(token, dict):
        return "" if token.get("special") else str(token.get("text") or "")
    choices = event.get("choices")
    if not isinstance(choices, list):
        return None
    pieces = []
    for choice in choices:
        delta = choice.get("delta") if isinstance(choice.get("delta"), dict) else choice
        pieces.append(str(delta.get("content") or delta.get("text") or ""))
    return "".join(pieces)


def invoke(
    name: options.EndpointName,
    body: Annotated[str, typer.Argument(help="The body; @FILE reads a file, - standard input.")],
    content_type: Annotated[str, typer.Option("--content-type")] = "application/json",
    accept: Annotated[str, typer.Option("--accept")] = "",
    variant: Annotated[str, typer.Option("--variant", help="TargetVariant.")] = "",
    target_model: Annotated[
        str, typer.Option("--target-model", help="TargetModel, of a multi-model endpoint.")
    ] = "",
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Print the answer while it is made; with --json its pieces."),
    ] = False,
    server: options.WaitOptions = options.WAIT,
) -> None:
    """Call an endpoint and print its answer; the request id goes to standard error."""
    client = server.client()
    headers = {"Content-Type": content_type}
    if accept:
        headers["X-Amzn-SageMaker-Accept" if stream else "Accept"] = accept
    if variant:
        headers["X-Amzn-SageMaker-Target-Variant"] = variant
    if target_model:
        headers["X-Amzn-SageMaker-Target-Model"] = target_model
    if stream:
        _print_stream(client, name, _read(body), headers, as_json=server.json_)
        return
    content = _read(body)
    with server.waiting(client) as waiting:
        reply, answered = while_running(
            lambda: client.invoke(name, content, headers),
            lambda: waiting.look(name, doing="waiting for the answer"),
        )
    if server.json_:
        print_json(
            {
                "request_id": answered.get("x-amzn-requestid"),
                "variant": answered.get("x-amzn-invoked-production-variant"),
                "content_type": answered.get("content-type"),
                "body": _as_value(reply),
            }
        )
        return
    note(f"request {answered.get('x-amzn-requestid', '')}")
    sys.stdout.buffer.write(reply)
    if sys.stdout.isatty() and not reply.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def _print_stream(
    client: Client, name: str, body: bytes, headers: dict[str, str], *, as_json: bool
) -> None:
    """Prints each piece as it arrives: the text of events, other answers unchanged."""
    out = sys.stdout
    answered: dict[str, str] = {}

    def begun(head: dict[str, str]) -> None:
        answered.update(head)
        note(f"request {head.get('x-amzn-requestid', '')}")

    text = EventText()
    for piece in client.stream(name, body, headers, begun):
        if as_json:
            print(json.dumps({"piece": _as_value(piece)}), flush=True)
        elif answered.get("x-amzn-sagemaker-content-type", "").startswith("text/event-stream"):
            out.write(text.feed(piece))
            out.flush()
        else:
            out.buffer.write(piece)
            out.buffer.flush()
    if not as_json:
        out.write(text.feed(b"", last=True) + ("\n" if out.isatty() else ""))
        out.flush()


def _read(body: str) -> bytes:
    if body == "-":
        return sys.stdin.buffer.read()
    if not body.startswith("@"):
        return body.encode("utf-8", "surrogateescape")
    try:
        return Path(body[1:]).read_bytes()
    except OSError as error:
        raise CallerError(
            "body-unreadable",
            f"{body[1:]} can't be read: {error.strerror}",
            hint="A body that begins with @ names a file; - reads standard input.",
        ) from error


def _as_value(reply: bytes) -> object:
    try:
        return json.loads(reply)
    except ValueError:
        return reply.decode("utf-8", "replace")
