"""vLLM's /tokenize and /detokenize: the tokens of a text or a chat, and the text of tokens.

    {"prompt": text, "add_special_tokens": true} or {"messages": [...], ...} ->
        {"count", "max_model_len", "tokens": [...], "token_strs": [...] or null}
    {"tokens": [...]} -> {"prompt": text}

Whoever has the tokenizer answers a question: a text model at once, the engine process of a model
that generates text in the thread that makes prompts into tokens.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import (
    GeneratedAnswer,
    GenerationCall,
    Writer,
    flag,
    mapping,
    unsupported,
    wrong,
)
from penstock.instance.codecs.generation.openai_chat import harmless
from penstock.instance.codecs.generation.openai_fields import missing, wrong_type
from penstock.instance.codecs.generation.openai_messages import messages_of
from penstock.instance.codecs.generation.openai_parameters import check_parameters
from penstock.instance.codecs.generation.openai_tools import tools_of
from penstock.runtimes.generation.base import Sampling

TOKENIZE: Final = "tokenize"
DETOKENIZE: Final = "detokenize"
OPERATIONS: Final = (TOKENIZE, DETOKENIZE)
_FLAGS: Final = ("add_generation_prompt", "continue_final_message")
#: Parameters that only a chat has.
_OF_CHAT: Final = (*_FLAGS, "chat_template_kwargs", "tools")

#: As `runtimes.generation.wire.add_message` has it.
TokenQuestion = dict[str, Any]


def question_of(operation: str, parsed: dict[str, Any]) -> TokenQuestion:
    """Raises CallerError with the parameter's name."""
    check_parameters(operation, parsed)
    if operation == DETOKENIZE:
        return {"text_of": _ids(parsed.get("tokens"))}
    prompt, messages = parsed.get("prompt"), parsed.get("messages")
    if prompt is not None and messages is not None:
        raise wrong("messages", "left out where prompt is sent")
    asked: Any = prompt
    if messages is not None:
        asked = _chat(messages, parsed)
    elif prompt is None:
        raise missing("prompt")
    elif not isinstance(prompt, str):
        raise wrong_type("prompt", prompt, "a string")
    else:
        for name in _OF_CHAT:
            if parsed.get(name) is not None:
                raise wrong(name, "left out where prompt is sent: it is about messages")
    return {
        "tokens_of": asked,
        "special": flag(parsed, "add_special_tokens", default=messages is None),
        "strings": flag(parsed, "return_token_strs"),
    }


def _chat(messages: Any, parsed: dict[str, Any]) -> dict[str, Any]:
    chat: dict[str, Any] = {"messages": messages_of(messages)}
    if parsed.get("tools") is not None:
        chat |= tools_of({"tools": parsed["tools"]})
    for name in _FLAGS:
        if parsed.get(name) is not None:
            chat[name] = flag(parsed, name)
    kwargs = mapping(parsed, "chat_template_kwargs")
    return chat | {"chat_template_kwargs": harmless(kwargs)} if kwargs else chat


def _ids(given: Any) -> list[int]:
    if given is None:
        raise missing("tokens")
    if not isinstance(given, list) or not all(type(each) is int for each in given):
        raise wrong("tokens", "a list of token ids")
    return given


def no_template(question: TokenQuestion) -> CallerError | None:
    """The error for a chat at a model that reads texts."""
    if isinstance(question.get("tokens_of"), dict):
        return unsupported("messages", "this model has no chat template: send a prompt")
    return None


def answer_of(told: dict[str, Any]) -> bytes:
    """The body of the answer. `told`: {"text"}, or {"tokens", "strings", "tokens_max"}."""
    if "text" in told:
        return orjson.dumps({"prompt": told["text"]})
    return orjson.dumps(
        {
            "count": len(told["tokens"]),
            "max_model_len": told["tokens_max"],
            "tokens": told["tokens"],
            "token_strs": told["strings"],
        }
    )


class _TokensWriter(Writer):
    def whole(self, answer: GeneratedAnswer) -> bytes:
        return answer_of(answer.tokenized)


def decode(operation: str, parsed: dict[str, Any]) -> GenerationCall:
    """For a model that generates text. Raises CallerError."""
    question = question_of(operation, parsed)
    return GenerationCall(question, Sampling(), _TokensWriter(stream=False))
