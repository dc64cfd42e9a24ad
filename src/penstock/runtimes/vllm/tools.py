"""Function calls of a vLLM model, read by vLLM's own parsers.

Two options name the parser, as for vLLM's server: `tool_call_parser` and `enable_auto_tool_choice`
(which may be left out where the first is given). The parser constrains sampling where it can, finds
calls in the text as it comes, and names them; this module does none of that itself.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

from penstock.errors import CallerError, ModelError
from penstock.runtimes.generation.base import ToolText

#: Options of vLLM's server about tools; its engine does not know them.
PARSER, AUTO = "tool_call_parser", "enable_auto_tool_choice"


def options_of(options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The parser's name, empty where tools are not served, and the options without these two."""
    rest, name, auto = {}, "", True
    for key, value in options.items():
        plain = key.lower().replace("-", "_")
        if plain == PARSER:
            name = str(value).strip()
        elif plain == AUTO:
            auto = str(value).lower() != "false"
        else:
            rest[key] = value
    return (name if auto else ""), rest


class VllmTools:
    """Makes a reader for each sequence. Use from one thread."""

    def __init__(self, name: str, model: str, tokenizer: Any, model_config: Any) -> None:
        """`name`: the parser's. Raises ModelError (`engine-options`)."""
        try:
            parsers = importlib.import_module("vllm.parser")
            protocol = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")
            self._parser = parsers.ParserManager.get_parser(
                tool_parser_name=name, enable_auto_tools=True, model_name=model,
                tokenizer=tokenizer,
            )  # fmt: skip
        except ImportError as error:
            raise _refused(name, f"this vLLM has not what reads tools: {error}") from None
        except Exception as error:  # vLLM has its own exceptions
            raise _refused(name, " ".join(str(error).split())[:300]) from None
        self._request: Any = protocol.ChatCompletionRequest
        self._tokenizer = tokenizer
        self._model_config = model_config

    def reader(self, chat: dict[str, Any], json_schema: str | None) -> VllmToolText:
        """For one sequence of a chat with tools. Raises CallerError (`invalid-parameter`)."""
        asked: dict[str, Any] = {
            key: chat[key] for key in ("messages", "tools", "tool_choice") if key in chat
        }
        if not chat.get("parallel_tool_calls", True):
            asked["parallel_tool_calls"] = False
        if json_schema is not None:
            schema = json.loads(json_schema)
            wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
            asked["response_format"] = wanted
        try:
            request = self._request.model_validate(asked)
            parser = self._parser(self._tokenizer, request.tools, model_config=self._model_config)
            if request.tool_choice != "none":
                request = parser.adjust_request(request=request)
        except Exception as error:  # pydantic's exceptions, and the parsers' own
            raise CallerError(
                "invalid-parameter",
                f"the engine does not take these tools: {' '.join(str(error).split())[:500]}",
                param="tools",
            ) from None
        return VllmToolText(parser, request)


class VllmToolText(ToolText):
    """See `base.ToolText`. `structured` goes into vLLM's sampling parameters."""

    def __init__(self, parser: Any, request: Any) -> None:
        self._parser = parser
        self._request = request
        self._one = request.parallel_tool_calls is False
        self._prompt: list[int] | None = None
        self.keeps_special = not request.skip_special_tokens
        self.structured = request.structured_outputs

    def begin(self, prompt: list[int]) -> None:
        self._prompt = prompt
        self._parser.set_prompt_token_ids(prompt)

    def add(
        self, text: str, token_ids: list[int], *, finished: bool
    ) -> tuple[str, list[list[Any]]]:
        delta = self._parser.parse_delta(
            text, token_ids, self._request, self._prompt, finished=finished
        )
        if delta is None:
            return "", []
        calls = [
            [
                call.index,
                call.id,
                call.function.name if call.function else None,
                (call.function.arguments if call.function else None) or "",
            ]
            for call in delta.tool_calls or ()
            if not (self._one and call.index)
        ]
        return delta.content or "", calls


def _refused(name: str, words: str) -> ModelError:
    return ModelError(
        "engine-options",
        f"vLLM does not take {PARSER} {name!r}: {words}",
        hint="Name one of vLLM's parsers (its documentation lists them), or leave the option out.",
    )
