"""OpenAI's /v1/chat/completions: messages in, a message or a stream of deltas out."""

from __future__ import annotations

from typing import Any

from penstock.instance.codecs.generation.calls import (
    Event,
    GeneratedAnswer,
    GeneratedChoice,
    GenerationCall,
    Served,
    finish_of,
    flag,
    mapping,
    wrong,
)
from penstock.instance.codecs.generation.openai_fields import (
    NAMES,
    OpenAiWriter,
    constrain,
    logprob_of,
    openai_checked,
    reasoning_effort,
    response_format,
    settings_of,
    usage_wanted,
)
from penstock.instance.codecs.generation.openai_messages import messages_of
from penstock.instance.codecs.generation.openai_parameters import check_parameters
from penstock.instance.codecs.generation.openai_tools import (
    call_delta,
    is_named,
    tools_of,
    whole_call,
)

_RENDERED_WITH = ("add_generation_prompt", "continue_final_message")


def decode(parsed: dict[str, Any], served: Served, *, stream: bool) -> GenerationCall:
    """Raises CallerError with the parameter's name in OpenAI's form."""
    check_parameters("chat", parsed)
    messages = messages_of(parsed.get("messages"))
    tools = tools_of(parsed)
    settings = settings_of(parsed, served)
    names = dict(NAMES)
    if parsed.get("max_completion_tokens") is not None:
        settings["tokens_new_max"] = parsed["max_completion_tokens"]
        names["tokens_new_max"] = "max_completion_tokens"
    if flag(parsed, "logprobs"):
        settings["logprobs"] = parsed.get("top_logprobs") or 0
        names["logprobs"] = "top_logprobs"
    elif parsed.get("top_logprobs") is not None:
        raise wrong("top_logprobs", "left out where logprobs is not true")
    constrain(parsed, settings, names, response_format(parsed), tools=bool(tools))
    stream = stream or flag(parsed, "stream")
    writer = _ChatWriter(
        served,
        "chatcmpl",
        ("chat.completion", "chat.completion.chunk"),
        stream=stream,
        usage=usage_wanted(parsed, stream=stream),
        logprobs=settings.get("logprobs") is not None,
    )
    writer.named = is_named(tools)
    chat: dict[str, Any] = {"messages": messages, **tools}
    if parsed.get("add_generation_prompt") is not None:
        chat["add_generation_prompt"] = flag(parsed, "add_generation_prompt")
    if parsed.get("continue_final_message") is not None:
        chat["continue_final_message"] = flag(parsed, "continue_final_message")
    kwargs = mapping(parsed, "chat_template_kwargs")
    if kwargs:
        chat["chat_template_kwargs"] = harmless(kwargs)
    if parsed.get("reasoning_effort") is not None:
        chat["reasoning_effort"] = reasoning_effort(parsed["reasoning_effort"], "reasoning_effort")
    return GenerationCall(chat, openai_checked(settings, names), writer, names)


def harmless(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Template settings may not replace the template's own arguments."""
    for name in ("messages", "tools", "documents", *_RENDERED_WITH):
        if name in kwargs:
            raise wrong("chat_template_kwargs", f"an object without {name}")
    return kwargs


class _ChatWriter(OpenAiWriter):
    __slots__ = ("named",)

    named: bool  #: the request named the one function to call

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        lines = []
        at = event.get("n", 0)
        if at not in self.begun:
            self.begun.add(at)
            delta = {"role": "assistant", "content": answer.prompt_text}
            lines.append(self.line(_choice(at, delta, None, None)))
        text, logprobs = event.get("x", ""), None
        if self.logprobs and event.get("l"):
            logprobs = {"content": [logprob_of(piece) for piece in event["l"]]}
        if text or logprobs is not None:
            lines.append(self.line(_choice(at, {"content": text}, logprobs, None)))
        if event.get("u"):
            calls = [call_delta(call) for call in event["u"]]
            lines.append(self.line(_choice(at, {"tool_calls": calls}, None, None)))
        if finish_of(event) is not None:
            lines.append(self.line(_choice(at, {}, None, self._finish(answer.choices[at]))))
        if "f" in event:
            lines.append(self.end(answer))
        return b"".join(lines)

    def whole(self, answer: GeneratedAnswer) -> bytes:
        return self.whole_of(
            [self._whole(at, choice, answer) for at, choice in enumerate(answer.choices)], answer
        )

    def _whole(self, at: int, choice: GeneratedChoice, answer: GeneratedAnswer) -> dict[str, Any]:
        logprobs = [logprob_of(piece) for piece in choice.pieces] if self.logprobs else None
        text = answer.text_of(choice)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if choice.calls:
            message["content"] = text or None
            message["tool_calls"] = [whole_call(call) for call in choice.calls]
        return {
            "index": at,
            "message": message,
            "logprobs": {"content": logprobs} if logprobs is not None else None,
            "finish_reason": self._finish(choice),
        }

    def _finish(self, choice: GeneratedChoice) -> str:
        called = choice.calls and choice.finish == "stop" and not self.named
        return "tool_calls" if called else choice.finish


def _choice(index: int, delta: dict[str, Any], logprobs: Any, finish: str | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
