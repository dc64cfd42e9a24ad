"""Function calls in a model's text: the form that its chat template teaches, for engines without
parsers of their own.

    hermes    <tool_call>{"name": ..., "arguments": {...}}</tool_call>   (Qwen, Hermes, SmolLM3)
    mistral   [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
    llama     {"name": ..., "parameters": {...}}; ...                    (Llama 3.1 and later)

A template without tools gets them in a system message, with hermes's form. Where the request
demands a call, a grammar holds the answer to the form, the functions' names and their parameters;
with `auto` the model decides, and its text is read.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import CallerError
from penstock.runtimes.generation.base import ToolText
from penstock.runtimes.generation.json_grammar import BASE_RULES, JsonGrammar
from penstock.runtimes.generation.json_patterns import literal

_DECODER: Final = json.JSONDecoder()
#: A call up to its arguments, as a grammar has it.
_CALL: Final = re.compile(r'\{"name": ("[^"]*"), "(?:arguments|parameters)": ')
#: Llama's key for arguments, as templates write it.
_PARAMETERS: Final = ('"parameters"', "'parameters'")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One family's form of calls."""

    name: str
    begin: str  #: what calls begin with; "" = they are the whole answer
    end: str = ""  #: what ends them; "" = the end of the answer
    arguments: str = "arguments"  #: the key of the arguments
    several: tuple[str, str, str] = ("", "", "")  #: before the calls, between two, behind them
    #: What a grammar writes before and behind each call.
    around: tuple[str, str] = ("", "")


HERMES: Final = ToolFormat(
    name="hermes",
    begin="<tool_call>",
    end="</tool_call>",
    several=("", "\n", ""),
    around=("<tool_call>\n", "\n</tool_call>"),
)
MISTRAL: Final = ToolFormat(name="mistral", begin="[TOOL_CALLS]", several=("[", ", ", "]"))
LLAMA: Final = ToolFormat(name="llama", begin="", arguments="parameters", several=("", "; ", ""))


def format_of(template: str | None) -> ToolFormat:
    """The form that a chat template teaches."""
    if template is not None and knows_tools(template):
        if MISTRAL.begin in template:
            return MISTRAL
        if HERMES.begin not in template and any(each in template for each in _PARAMETERS):
            return LLAMA
    return HERMES


def knows_tools(template: str) -> bool:
    return "tools" in template


def system_message(tools: list[Any]) -> str:
    """The tools in words, for a template that has no place for them."""
    listed = "\n".join(json.dumps(each["function"], ensure_ascii=False) for each in tools)
    example = '{"name": "FUNCTION", "arguments": {"PARAMETER": "VALUE"}}'
    return (
        f"You can call these functions, each given with the JSON schema of its parameters:\n"
        f"{listed}\nTo call one, answer with:\n{HERMES.begin}\n{example}\n{HERMES.end}"
    )


def calls_grammar(form: ToolFormat, chat: dict[str, Any], json_schema: str | None) -> str | None:
    """The grammar of an answer to a chat with tools; None: it is free. Raises CallerError."""
    choice = chat.get("tool_choice", "auto")
    if choice == "auto" and json_schema is None:
        return None
    named = choice["function"]["name"] if isinstance(choice, dict) else None
    rules, calls = [], []
    for at, tool in enumerate(chat["tools"]):
        function = tool["function"]
        if named is not None and function["name"] != named:
            continue
        schema = function.get("parameters") or {"type": "object"}
        grammar = JsonGrammar(schema, base=f"tool{at}x")
        try:
            value = grammar.value(schema, function["name"])
        except CallerError as error:
            error.param = "tools"
            raise
        begin = f'{{"name": {json.dumps(function["name"])}, "{form.arguments}": '
        before, behind = form.around
        calls.append(f"{literal(before + begin)} {value} {literal('}' + behind)}")
        rules.append(grammar.rules())
    begin, between, end = map(literal, form.several)
    more = f" ({between} call)*" if named is None and chat.get("parallel_tool_calls", True) else ""
    root = f"{begin} call{more} {end}"
    if choice == "auto" and json_schema is not None:
        document = json.loads(json_schema)
        answer = JsonGrammar(document)
        root = f"{root} | {answer.value(document, 'the schema')}"
        rules.append(answer.rules())
    return f"root ::= {root}\ncall ::= {' | '.join(calls)}\n{''.join(rules)}{BASE_RULES}"


class ToolFormats:
    """Makes readers for one model. Use from one thread."""

    def __init__(self, template: str | None, special: frozenset[str]) -> None:
        """`special`: texts of special tokens, which are no part of an answer's usual text."""
        self._form = format_of(template)
        tags = (self._form.begin, self._form.end)
        self._keeps_special = any(tag in special for tag in tags if tag)

    def reader(self, chat: dict[str, Any], json_schema: str | None) -> FormatReader:
        """For one sequence of a chat with tools. Raises CallerError."""
        form = self._form
        return FormatReader(
            form,
            names=frozenset(tool["function"]["name"] for tool in chat["tools"]),
            one=not chat.get("parallel_tool_calls", True),
            grammar=calls_grammar(form, chat, json_schema),
            keeps_special=self._keeps_special,
        )


class FormatReader(ToolText):
    """Finds calls in one answer. A call is returned when it is whole, or when the answer ends."""

    def __init__(
        self, form: ToolFormat, *, names: frozenset[str], one: bool, grammar: str | None,
        keeps_special: bool,
    ) -> None:  # fmt: skip
        """`grammar`: what the engine holds the answer to; `one`: more calls are not returned."""
        self.grammar = grammar
        self.keeps_special = keeps_special
        self._form = form
        self._names = names
        self._one = one
        self._held = ""
        self._inside = False  #: within a call, or in an answer that is one
        self._count = 0

    def begin(self, prompt: list[int]) -> None:
        return

    def add(
        self, text: str, token_ids: list[int], *, finished: bool
    ) -> tuple[str, list[list[Any]]]:
        self._held += text
        content, calls = "", []
        form = self._form
        while True:
            if not self._inside:
                content += self._before_call(finished)
                if not self._inside:
                    break
            if form.end and form.end in self._held:
                inside, _, self._held = self._held.partition(form.end)
                self._held = self._held.lstrip("\n") if self._held.strip("\n") else ""
            elif finished:
                inside, self._held = self._held, ""
            else:
                break
            self._inside = False
            found = self._read(inside)
            calls += found
            content += "" if found else form.begin + inside
        return content, calls

    def _before_call(self, finished: bool) -> str:
        """Text that belongs to no call; what may begin one is held."""
        held, begin = self._held, self._form.begin
        if begin and begin in held:
            content, _, self._held = held.partition(begin)
            self._inside = True
            return content if content.strip() else ""
        if self._count == 0 and held.lstrip()[:1] in self._openings():
            self._inside = True
            return ""
        if finished or not (begin or self._openings()):
            self._held = ""
            return held
        keep = next(
            (size for size in range(len(begin) - 1, 0, -1) if held.endswith(begin[:size])), 0
        )
        if not held[: len(held) - keep].strip():
            keep = len(held)  # blanks before a call are no content
        self._held = held[len(held) - keep :] if keep else ""
        return held[: len(held) - keep]

    def _openings(self) -> tuple[str, ...]:
        """Characters that an answer of calls alone may begin with."""
        if self._form is LLAMA:
            return ("{",)
        return ("[",) if self._form is MISTRAL and self.grammar is not None else ()

    def _read(self, text: str) -> list[list[Any]]:
        found: list[list[Any]] = []
        at = 0
        while at < len(text):
            if text[at] in " \n\t\r,;[]":
                at += 1
                continue
            try:
                value, at = _DECODER.raw_decode(text, at)
            except ValueError:
                value, at = self._cut(text[at:]), len(text)
            values = value if isinstance(value, list) else [value]
            for each in values:
                call = self._call(each)
                if call is None:
                    return []
                found.append(call)
        if self._one:
            found = found[: max(0, 1 - self._count)] if self._count else found[:1]
        for call in found:
            call[0] = self._count
            self._count += 1
        return found

    def _call(self, value: Any) -> list[Any] | None:
        if not isinstance(value, dict) or value.get("name") not in self._names:
            return None
        arguments = value.get("arguments", value.get("parameters", {}))
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        return [0, f"call_{os.urandom(12).hex()}", value["name"], arguments]

    def _cut(self, text: str) -> Any:
        """A call that the answer's length cut off: its arguments as far as they came."""
        begun = _CALL.match(text)
        if self.grammar is None or begun is None:
            return None
        return {"name": json.loads(begun[1]), "arguments": text[begun.end() :]}
