"""Common parts of the answers of OpenAI's chat and text completions: head, lines and end."""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.instance.codecs.generation.calls import JSON, SSE, GeneratedAnswer, Served, sse
from penstock.instance.codecs.generation.openai_fields import usage

DONE: Final = b"data: [DONE]\n\n"


class OpenAiWriter:
    """Writes one answer; subclasses define the form of a choice."""

    __slots__ = (
        "_created", "_ident", "_line_object", "_model", "_object", "_usage", "begun",
        "content_type", "logprobs", "stream",
    )  # fmt: skip

    def __init__(
        self,
        served: Served,
        ident: str,
        objects: tuple[str, str],
        *,
        stream: bool,
        usage: bool,
        logprobs: bool,
    ) -> None:
        """
        Args:
            ident: prefix of ids of this kind.
            objects: object names of the whole answer and of a streamed line.
            usage: the end of a stream has the token counts.
        """
        self._object, self._line_object = objects
        self._ident = f"{ident}-{served.new_id()}"
        self._created = served.now_s()
        self._model = served.name
        self._usage = usage
        self.stream = stream
        self.content_type = SSE if stream else JSON
        self.logprobs = logprobs  #: whether the request asks for log-probabilities
        self.begun: set[int] = set()  #: sequences that have at least one line

    def line(self, choice: dict[str, Any]) -> bytes:
        """A streamed line. It has a `usage` of null only if the last line will have the counts."""
        made = self._head(self._line_object, [choice], None)
        if not self._usage:
            del made["usage"]
        return sse(made)

    def end(self, answer: GeneratedAnswer) -> bytes:
        """The lines after the last choice of a stream."""
        if not self._usage:
            return DONE
        return sse(self._head(self._line_object, [], usage(answer))) + DONE

    def whole_of(self, choices: list[dict[str, Any]], answer: GeneratedAnswer) -> bytes:
        """The whole answer, without streaming."""
        return orjson.dumps(self._head(self._object, choices, usage(answer)))

    def _head(self, kind: str, choices: list[Any], used: Any) -> dict[str, Any]:
        return {
            "id": self._ident,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
            "usage": used,
        }


def logprob_of(piece: list[Any]) -> dict[str, Any]:
    """A token, with the likeliest tokens at its place."""
    text, logprob, top = piece
    return {
        "token": text,
        "logprob": logprob,
        "bytes": list(text.encode("utf-8", "replace")),
        "top_logprobs": [
            {"token": each, "logprob": value, "bytes": list(each.encode("utf-8", "replace"))}
            for _, each, value in top
        ],
    }
