"""Answers of /v1/responses, whole or as events: in their order, numbered from 0.

A stream is response.created, response.in_progress, then for each output item its own events, then
response.completed, or response.incomplete where the answer was cut at its length. There is no
`[DONE]`. An answer that fails ends with the front door's `error` event.
"""

from __future__ import annotations

from typing import Any

import orjson

from penstock.instance.codecs.generation.calls import Event, GeneratedAnswer, Served, Writer
from penstock.instance.codecs.generation.openai_fields import logprob_of


class ResponsesWriter(Writer):
    __slots__ = (
        "_asked", "_calls", "_head", "_ident", "_logprobs", "_number", "_open", "_output",
    )  # fmt: skip

    def __init__(
        self, served: Served, *, stream: bool, logprobs: bool, asked: dict[str, Any]
    ) -> None:
        """`asked`: fields of the request that the response repeats."""
        super().__init__(stream=stream)
        self._ident = served.new_id()
        self._head: dict[str, Any] = {
            "id": f"resp_{self._ident}",
            "object": "response",
            "created_at": served.now_s(),
            "model": served.name,
        }
        self._asked = asked
        self._logprobs = logprobs
        self._number = 0  #: number of the next event
        self._output: list[dict[str, Any]] = []  #: output items; the last one may be open
        self._open = False
        self._calls: dict[int, dict[str, Any]] = {}  #: the engine's number of a call -> its item

    # The stream

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        events = []
        if not self._number:
            for kind in ("response.created", "response.in_progress"):
                events.append(self._event(kind, response=self._response("in_progress", None)))
        text, last = event.get("x", ""), "f" in event
        if text or (last and not self._output and not event.get("u")):
            events += self._text(text, event)
        for call in event.get("u", ()):
            events += self._call(call)
        if last:
            status = _status(answer)
            events += self._close(status)
            events.append(
                self._event(f"response.{status}", response=self._response(status, answer))
            )
        return b"".join(events)

    def _text(self, text: str, event: Event) -> list[bytes]:
        """Events for new text of the message."""
        events = []
        if not self._open or self._output[-1]["type"] != "message":
            events += self._begin(self._message())
            events.append(self._of_part("response.content_part.added", part=_part()))
            self._output[-1]["content"] = [_part()]
        part = self._output[-1]["content"][0]
        logprobs = [logprob_of(piece) for piece in event.get("l", ())] if self._logprobs else []
        part["text"] += text
        part["logprobs"] += logprobs
        if text:
            events.append(
                self._of_part("response.output_text.delta", delta=text, logprobs=logprobs)
            )
        return events

    def _call(self, call: list[Any]) -> list[bytes]:
        """Events for a new part of a function call."""
        index, ident, name, arguments = call
        events = []
        item = self._calls.get(index)
        if item is None:
            item = self._calls[index] = self._function_call(ident or "", name or "")
            events += self._begin(item)
        item["arguments"] += arguments
        if arguments:
            events.append(
                self._event(
                    "response.function_call_arguments.delta",
                    item_id=item["id"],
                    output_index=self._output.index(item),
                    delta=arguments,
                )
            )
        return events

    def _begin(self, item: dict[str, Any]) -> list[bytes]:
        """Ends the previous item and opens a new one."""
        events = self._close("completed")
        self._output.append(item)
        self._open = True
        at = len(self._output) - 1
        return [*events, self._event("response.output_item.added", output_index=at, item=item)]

    def _close(self, status: str) -> list[bytes]:
        """The last events of the open item."""
        if not self._open:
            return []
        self._open = False
        item, at = self._output[-1], len(self._output) - 1
        item["status"] = status
        if item["type"] == "message":
            part = item["content"][0]
            events = [
                self._of_part(
                    "response.output_text.done", text=part["text"], logprobs=part["logprobs"]
                ),
                self._of_part("response.content_part.done", part=part),
            ]
        else:
            events = [
                self._event(
                    "response.function_call_arguments.done",
                    item_id=item["id"],
                    output_index=at,
                    name=item["name"],
                    arguments=item["arguments"],
                )
            ]
        return [*events, self._event("response.output_item.done", output_index=at, item=item)]

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(data))

    def _of_part(self, kind: str, **fields: Any) -> bytes:
        """An event of the open message's one part."""
        ident, at = self._output[-1]["id"], len(self._output) - 1
        return self._event(kind, item_id=ident, output_index=at, content_index=0, **fields)

    # The whole answer

    def whole(self, answer: GeneratedAnswer) -> bytes:
        status = _status(answer)
        calls = answer.choices[0].calls
        if answer.text or not calls:
            part = _part()
            part["text"] = answer.text
            if self._logprobs:
                part["logprobs"] = [logprob_of(piece) for piece in answer.pieces]
            self._output.append(self._message() | {"status": status, "content": [part]})
        for call in calls:
            made = self._function_call(call["id"], call["name"])
            self._output.append(made | {"status": status, "arguments": call["arguments"]})
        return orjson.dumps(self._response(status, answer))

    # Items

    def _message(self) -> dict[str, Any]:
        return {
            "id": self._item_id("msg"),
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }

    def _function_call(self, ident: str, name: str) -> dict[str, Any]:
        return {
            "id": self._item_id("fc"),
            "type": "function_call",
            "status": "in_progress",
            "call_id": ident,
            "name": name,
            "arguments": "",
        }

    def _item_id(self, kind: str) -> str:
        """The id of the next item."""
        at = len(self._output)
        return f"{kind}_{self._ident}_{at}" if at else f"{kind}_{self._ident}"

    def _response(self, status: str, answer: GeneratedAnswer | None) -> dict[str, Any]:
        cut = status == "incomplete"
        return {
            **self._head,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": self._output,
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


def _part() -> dict[str, Any]:
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def _status(answer: GeneratedAnswer) -> str:
    return "incomplete" if answer.finish == "length" else "completed"


def _usage(answer: GeneratedAnswer) -> dict[str, Any]:
    # Clients read `cached_tokens` without asking whether it is there: null where it is not known.
    return {
        "input_tokens": answer.tokens_in,
        "input_tokens_details": {"cached_tokens": answer.tokens_cached},
        "output_tokens": answer.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.tokens_in + answer.tokens_out,
    }
