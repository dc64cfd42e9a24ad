"""Answers of /v1/responses, whole or as its events: in their order, numbered from 0.

A stream is response.created, response.in_progress, then for each output item its own events, then
response.completed, or response.incomplete where the answer was cut at its length. There is no
`[DONE]`. An answer that breaks ends with the door's `error` event.
"""

from __future__ import annotations

from typing import Any

import orjson

from penstock.instance.codecs.generation.calls import JSON, SSE, Answer, Event, Served
from penstock.instance.codecs.generation.openai_writer import logprob_of


class ResponsesWriter:
    """See `calls.Writer`."""

    __slots__ = (
        "_asked", "_head", "_logprobs", "_message", "_number", "_open", "content_type", "stream",
    )  # fmt: skip

    def __init__(
        self, served: Served, *, stream: bool, logprobs: bool, asked: dict[str, Any]
    ) -> None:
        """`asked`: what the response repeats of its request."""
        ident = served.new_id()
        self.stream = stream
        self.content_type = SSE if stream else JSON
        self._head: dict[str, Any] = {
            "id": f"resp_{ident}",
            "object": "response",
            "created_at": served.now_s(),
            "model": served.name,
        }
        self._asked = asked
        self._logprobs = logprobs
        self._message = f"msg_{ident}"
        self._number = 0  #: of the next event
        self._open = False  #: the message was begun

    def chunk(self, event: Event, answer: Answer) -> bytes:
        events = []
        if not self._number:
            events += [
                self._event("response.created", response=self._response("in_progress", [], None)),
                self._event(
                    "response.in_progress", response=self._response("in_progress", [], None)
                ),
            ]
        text, last = event.get("x", ""), "f" in event
        if (text or last) and not self._open:
            self._open = True
            events += self._begun()
        if text:
            logprobs = [logprob_of(piece) for piece in event.get("l", ())] if self._logprobs else []
            events.append(
                self._of_part("response.output_text.delta", delta=text, logprobs=logprobs)
            )
        if last:
            events += self._ended(answer)
        return b"".join(events)

    def _begun(self) -> list[bytes]:
        item = self._item("in_progress", [])
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return [
            self._event("response.output_item.added", output_index=0, item=item),
            self._of_part("response.content_part.added", part=part),
        ]

    def _ended(self, answer: Answer) -> list[bytes]:
        part = self._part(answer)
        status = _status(answer)
        item = self._item(status, [part])
        return [
            self._of_part(
                "response.output_text.done", text=part["text"], logprobs=part["logprobs"]
            ),
            self._of_part("response.content_part.done", part=part),
            self._event("response.output_item.done", output_index=0, item=item),
            self._event(f"response.{status}", response=self._response(status, [item], answer)),
        ]

    def whole(self, answer: Answer) -> bytes:
        status = _status(answer)
        item = self._item(status, [self._part(answer)])
        return orjson.dumps(self._response(status, [item], answer))

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(data))

    def _of_part(self, kind: str, **fields: Any) -> bytes:
        """An event of the message's one part."""
        return self._event(kind, item_id=self._message, output_index=0, content_index=0, **fields)

    def _item(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {
            "id": self._message,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _part(self, answer: Answer) -> dict[str, Any]:
        logprobs = [logprob_of(piece) for piece in answer.pieces] if self._logprobs else []
        return {
            "type": "output_text", "text": answer.text, "annotations": [], "logprobs": logprobs,
        }  # fmt: skip

    def _response(self, status: str, output: list[Any], answer: Answer | None) -> dict[str, Any]:
        cut = status == "incomplete"
        return {
            **self._head,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "tool_choice": "auto",
            "tools": [],
            "truncation": "disabled",
            "usage": None if answer is None else _usage(answer),
            **self._asked,
        }


def _status(answer: Answer) -> str:
    return "incomplete" if answer.finish == "length" else "completed"


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "input_tokens": answer.tokens_in,
        "input_tokens_details": {"cached_tokens": answer.tokens_cached},
        "output_tokens": answer.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.tokens_in + answer.tokens_out,
    }
