"""Text Generation Inference's JSON: {"inputs": text, "parameters": {...}, "stream": bool}.

The names and defaults are those of TGI 3 (huggingface.co/docs/text-generation-inference). As there,
the text includes the stop string that ends it, and the answer of the root path is a list of one.
Events are lines "data:{...}" without a space, one for each token.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.errors import CallerError
from penstock.instance.codecs.generation.calls import (
    Event,
    GeneratedAnswer,
    GenerationCall,
    Writer,
    flag,
    mapping,
    schema_text,
    unsupported,
    wrong,
)
from penstock.runtimes.generation.limits import checked

TOKENS_NEW: Final = 100  #: default if the request has none, as in TGI

_NAMES: Final = {
    "tokens_new_max": "max_new_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "tokens_new_min": "min_new_tokens",
    "ignore_eos": "ignore_eos_token",
}
_FINISH: Final = {"stop": "eos_token", "length": "length"}


def decode(parsed: dict[str, Any], *, stream: bool) -> GenerationCall:
    """Raises CallerError with the parameter's name in TGI's form."""
    inputs = parsed.get("inputs")
    if not isinstance(inputs, str):
        raise CallerError("invalid-parameter", "inputs must be a text")
    given = mapping(parsed, "parameters")
    for name in ("best_of", "num_return_sequences"):
        if given.get(name) not in (None, 1):
            raise unsupported(name, "one answer is made of a request")
    for name in ("typical_p", "watermark", "adapter_id", "top_n_tokens", "decoder_input_details"):
        if given.get(name) not in (None, False, 1.0, 0):
            raise unsupported(name, "the engine does not have it")
    if given.get("truncate") is not None:
        raise unsupported("truncate", "a prompt that is too long is refused")
    stream = stream or flag(parsed, "stream")
    details = flag(given, "details")
    settings: dict[str, Any] = {field: given.get(name) for field, name in _NAMES.items()}
    settings["stop"] = given.get("stop") if given.get("stop") is not None else []
    settings["stop_included"] = True
    settings["logprobs"] = 0 if stream or details else None
    settings["echo"] = flag(given, "return_full_text")
    if given.get("grammar") is not None:
        settings["json_schema"] = _grammar(mapping(given, "grammar"))
    _choose_sampling(given, settings)
    if settings["tokens_new_max"] is None:
        settings["tokens_new_max"] = TOKENS_NEW
    sampling = checked(settings, _NAMES | {"json_schema": "grammar"})
    return GenerationCall(inputs, sampling, _TgiWriter(stream, details))


def _choose_sampling(given: dict[str, Any], settings: dict[str, Any]) -> None:
    """Turns sampling on for `do_sample` or any setting of sampling; otherwise the search is
    greedy."""
    shaping = ("temperature", "top_p", "top_k")
    wanted = flag(given, "do_sample") or any(given.get(name) is not None for name in shaping)
    if given.get("do_sample") is False or not wanted:
        settings["temperature"] = 0.0
    elif settings["temperature"] is None:
        settings["temperature"] = 1.0


def _grammar(grammar: dict[str, Any]) -> str:
    if grammar.get("type") not in ("json", "json_object"):
        raise unsupported(f"grammar of type {grammar.get('type')!r}", "only json is")
    if "value" not in grammar:
        raise wrong("grammar", 'an object with "type" and "value"')
    return schema_text("grammar", grammar["value"])


class _TgiWriter(Writer):
    __slots__ = ("_details", "_index")

    def __init__(self, stream: bool, details: bool) -> None:
        super().__init__(stream=stream)
        self._details = details
        self._index = 0

    def chunk(self, event: Event, answer: GeneratedAnswer) -> bytes:
        tokens, last = event.get("t", []), "f" in event
        pieces = event.get("l") or [["", 0.0, []]] * len(tokens)
        special = event.get("z", ())
        lines = []
        for at, ident in enumerate(tokens):
            ends = at == len(tokens) - 1
            self._index += 1
            line: dict[str, Any] = {
                "index": self._index,
                "token": {
                    "id": ident,
                    "text": event.get("x", "") if ends else "",
                    "logprob": pieces[at][1],
                    "special": at in special,
                },
                "generated_text": None,
                "details": None,
            }
            if ends and last:
                line["generated_text"] = answer.text
                line["details"] = _details(answer)
            lines.append(b"data:" + orjson.dumps(line) + b"\n\n")
        return b"".join(lines)

    def whole(self, answer: GeneratedAnswer) -> bytes:
        made: dict[str, Any] = {"generated_text": answer.text}
        if self._details:
            tokens = [
                {
                    "id": ident,
                    "text": piece[0],
                    "logprob": piece[1],
                    "special": at in answer.special,
                }
                for at, (ident, piece) in enumerate(
                    zip(answer.token_ids, answer.pieces, strict=True)
                )
            ]
            made["details"] = _details(answer) | {"prefill": [], "tokens": tokens}
        return orjson.dumps([made])


def _details(answer: GeneratedAnswer) -> dict[str, Any]:
    reason = _FINISH.get(answer.finish, answer.finish)
    if reason == "eos_token" and not answer.special:
        reason = "stop_sequence"  # no token of the model ended it
    return {
        "finish_reason": reason,
        "generated_tokens": answer.tokens_out,
        "seed": answer.seed,
    }
