"""Prompts to tokens: the tokenizer and the chat template of a model's folder.

Templates come with models and are not trusted: they run in Jinja's sandbox, without files. This
module runs in the engine process and knows no engine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from penstock.distribution import install_command
from penstock.errors import CallerError, ModelError
from penstock.runtimes.generation.limits import checked
from penstock.runtimes.generation.tool_formats import knows_tools, system_message
from penstock.runtimes.tokenizer_file import CHARACTERS_PER_TOKEN_MAX, open_tokenizer_file

_FILE_BYTES_MAX = 64 << 20
_GENERATION = "generation_config.json"
_OF_MODEL = "model"  #: value of `sampling_defaults`
#: Its settings that are defaults, as in vLLM's server; `do_sample` and lengths are not.
_DRAWN = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
#: A marker at the end of a message that the answer continues: the prompt is cut where a template
#: puts it.
_GOES_ON_HERE = "\u241epenstock-goes-on-here\u241e"


class Prompts:
    """Use from one thread."""

    tokenizer: Any
    #: Fields of `Sampling` that the model's files give where a request gives none
    sampling: Mapping[str, float] = MappingProxyType({})
    _settings: Mapping[str, Any] = MappingProxyType({})  #: of the tokenizer

    def __init__(self, model_dir: Path, *, chat_template: str = "") -> None:
        """`chat_template`: a file below `model_dir` that replaces the model's own. Raises
        ModelError."""
        self.tokenizer = open_tokenizer_file(model_dir)
        self._settings = _read_json(model_dir / "tokenizer_config.json")
        self._source = _template_of(model_dir, self._settings, chat_template)
        self._template: Any = None
        if self._source is not None:
            self._template = _compiled(self._source)

    @property
    def vocabulary(self) -> int:
        return int(self.tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def template(self) -> str | None:
        """The source of the chat template."""
        return self._source

    def decode(self, ids: list[int]) -> str:
        """Text without special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def decode_all(self, ids: list[int]) -> str:
        """Text that includes special tokens."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def piece(self, token: int) -> str:
        """The text of one token alone; special tokens are included."""
        return str(self.tokenizer.decode([token], skip_special_tokens=False))

    def special_ids(self) -> frozenset[int]:
        added = self.tokenizer.get_added_tokens_decoder()
        return frozenset(ident for ident, token in added.items() if token.special)

    def special_texts(self) -> frozenset[str]:
        added = self.tokenizer.get_added_tokens_decoder()
        return frozenset(token.content for token in added.values() if token.special)

    def tokens(self, prompt: Any, *, tokens_max: int, last: int | None = None) -> list[int]:
        """Token ids of a text, of ids (checked), or of {"messages": [...]}.

        `last`: only so many tokens from the end of the prompt; -1: as many as fit.

        Raises CallerError: `prompt-empty`, `prompt-too-long`, `invalid-parameter`, and those of
        `render`.
        """
        bound = tokens_max if last is None else sys.maxsize
        if isinstance(prompt, list):
            ids = self._checked(prompt, "prompt")
        elif isinstance(prompt, dict):
            ids = self._encoded(self.render(prompt), bound, special=False, name="messages")
        else:
            ids = self._encoded(prompt, bound, special=True, name="prompt")
        if last is not None and ids:
            ids = ids[-(tokens_max - 1 if last < 0 else last) :] if last else []
        name = "messages" if isinstance(prompt, dict) else "prompt"
        if not ids:
            raise CallerError("prompt-empty", "the prompt is empty: it has no tokens", param=name)
        if len(ids) >= tokens_max:
            raise _too_long(f"{len(ids)} tokens", tokens_max, name)
        return ids

    def told(self, question: dict[str, Any], *, tokens_max: int) -> dict[str, Any]:
        """The answer to a question about tokens, as `wire.add_message` has them: the tokens of
        a text or a chat, which may be longer than the context; or the text of tokens.

        Raises CallerError: `prompt-too-long`, `invalid-parameter`, and those of `render`.
        """
        if "text_of" in question:
            return {"text": self.decode_all(self._checked(question["text_of"], "tokens"))}
        asked = question["tokens_of"]
        is_chat = isinstance(asked, dict)
        text, name = (self.render(asked), "messages") if is_chat else (asked, "prompt")
        ids = self._encoded(text, tokens_max, special=question["special"], name=name)
        strings = [self.tokenizer.id_to_token(each) for each in ids]
        return {
            "tokens": ids,
            "strings": strings if question["strings"] else None,
            "tokens_max": tokens_max,
        }

    def render(self, chat: dict[str, Any]) -> str:
        """The chat as one text. Raises CallerError: `chat-template-missing`,
        `chat-template-refused`, `invalid-parameter`."""
        if not chat.get("continue_final_message"):
            return self._rendered(chat)
        *before, last = chat["messages"]
        if last.get("role") != "assistant" or chat.get("add_generation_prompt"):
            raise CallerError(
                "invalid-parameter",
                "continue_final_message goes on with a message of the assistant: it must be the "
                "last one, and add_generation_prompt must not be true",
                param="continue_final_message",
            )
        marked = {**last, "content": f"{last.get('content') or ''}{_GOES_ON_HERE}"}
        text = self._rendered(
            {**chat, "messages": [*before, marked], "add_generation_prompt": False}
        )
        begun, mark, _ = text.rpartition(_GOES_ON_HERE)
        if not mark:
            raise CallerError(
                "chat-template-refused",
                "the model's chat template leaves out the message that is to be gone on with",
            )
        return begun

    def _rendered(self, chat: dict[str, Any]) -> str:
        """As `render`, for a chat whose answer is a new message."""
        if self._template is None:
            raise CallerError(
                "chat-template-missing",
                "this model has no chat template, so messages can't be made a prompt",
                hint="Send a plain prompt, or put chat_template.jinja into the model's folder.",
            )
        messages, tools = chat["messages"], chat.get("tools")
        effort = chat.get("reasoning_effort")
        if effort is not None and "reasoning_effort" not in (self._source or ""):
            raise CallerError(
                "parameter-unsupported",
                "reasoning_effort is not supported: the model's chat template does not read it",
                param="reasoning_effort",
            )
        arguments = chat.get("chat_template_kwargs", {})
        if effort is not None:
            arguments = arguments | {"reasoning_effort": effort}
        if tools and not knows_tools(self._source or ""):
            messages = _with_system(system_message(tools), messages)
        try:
            return str(
                self._template.render(
                    messages=[_with_arguments(each) for each in messages],
                    add_generation_prompt=chat.get("add_generation_prompt", True),
                    tools=tools,
                    documents=None,
                    **self.special_tokens(),
                    **arguments,
                )
            )
        except Exception as error:  # a template may raise anything
            raise CallerError(
                "chat-template-refused",
                f"the model's chat template does not take these messages: {str(error)[:300]}",
                param="messages",
            ) from None

    def _encoded(self, text: str, tokens_max: int, *, special: bool, name: str) -> list[int]:
        # Too long for the context in any tokenization
        if len(text) > CHARACTERS_PER_TOKEN_MAX * tokens_max:
            raise _too_long(f"{len(text)} characters", tokens_max, name)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def _checked(self, ids: list[Any], name: str) -> list[int]:
        size = self.vocabulary
        for each in ids:
            if type(each) is not int or not 0 <= each < size:
                raise CallerError(
                    "invalid-parameter",
                    f"{name} has the token {each!r}: ids are integers from 0 to {size - 1}",
                    param=name,
                )
        return ids

    def special_tokens(self) -> dict[str, str]:
        """Their texts by the names of a tokenizer's settings; "" for one that is not there."""
        found = {}
        for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
            token = self._settings.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            found[name] = text if isinstance(text, str) else ""
        return found


def _with_system(text: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Templates take one system message, the first one: it is joined with the text."""
    if messages and messages[0].get("role") == "system":
        text = f"{messages[0].get('content') or ''}\n\n{text}"
        messages = messages[1:]
    return [{"role": "system", "content": text}, *messages]


def _with_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """An earlier answer with its calls' arguments as objects, which templates write as JSON."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_with_object(call) for call in calls]}


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _too_long(has: str, tokens_max: int, name: str) -> CallerError:
    return CallerError(
        "prompt-too-long",
        f"the prompt has {has}, and the model's context of {tokens_max} tokens must hold it and at "
        "least one token of the answer",
        hint="Shorten the prompt.",
        param=name,
    )


def _template_of(model_dir: Path, settings: dict[str, Any], chosen: str) -> str | None:
    path = model_dir / (chosen or "chat_template.jinja")
    if path.is_file():
        return path.read_text(encoding="utf-8")
    if chosen:
        raise ModelError("chat-template-missing", f"the model has no file {chosen!r}")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several templates, by name
        named = {each.get("name"): each.get("template") for each in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _compiled(source: str) -> Any:
    try:
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ModelError(
            "jinja2-missing",
            "the model has a chat template, which needs the package jinja2",
            hint=install_command("generate"),
        ) from None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = time.strftime
    try:
        return environment.from_string(source)
    except Exception as error:  # jinja2's own kinds
        raise ModelError(
            "chat-template-damaged", f"the chat template can't be read: {str(error)[:300]}"
        ) from None


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _read_json(path: Path) -> dict[str, Any]:
    """{} where the file is not there. Raises ModelError."""
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise ValueError("it is too large")
        value = json.loads(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError("it holds no object")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError("model-file-invalid", f"{path.name}: {error}") from None
    return value


def model_prompts(model_dir: Path, settings: dict[str, Any]) -> tuple[dict[str, Any], Prompts]:
    """`settings` completed from the model's files, and its prompts. Raises ModelError."""
    found = {"eos_ids": eos_ids(model_dir), "positions_max": positions_max(model_dir)}
    prompts = Prompts(model_dir, chat_template=settings["chat_template"])
    if settings["sampling_defaults"] == _OF_MODEL:
        prompts.sampling = sampling_defaults(model_dir)
    return settings | found, prompts


def eos_ids(model_dir: Path) -> list[int]:
    """Tokens that end an answer, from generation_config.json, else from config.json."""
    for name in (_GENERATION, "config.json"):
        found = _read_json(model_dir / name).get("eos_token_id")
        ids = found if isinstance(found, list) else [found]
        if ids and all(type(each) is int and each >= 0 for each in ids):
            return list(ids)
    return []


def sampling_defaults(model_dir: Path) -> dict[str, float]:
    """How the model's makers draw its answers: what generation_config.json says of it. Raises
    ModelError."""
    found = _read_json(model_dir / _GENERATION)
    given = {name: found.get(name) for name in _DRAWN}
    if given["top_k"] == -1:
        given["top_k"] = 0  # some write all tokens so
    try:
        sampling = checked(given)
    except CallerError as error:
        raise ModelError(
            "model-file-invalid",
            f"{_GENERATION}: {error.message}",
            hint="Mend the file, or set engine.sampling_defaults: openai in model.yaml.",
        ) from None
    return {name: getattr(sampling, name) for name in _DRAWN if given[name] is not None}


def positions_max(model_dir: Path) -> int:
    """The model's context length by its configuration; 0 where it has none."""
    found = _read_json(model_dir / "config.json").get("max_position_embeddings")
    return found if type(found) is int and found > 0 else 0
