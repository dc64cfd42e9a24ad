"""Calls in a model's text, by family: read piece by piece, and left where they are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import CallerError
from penstock.runtimes.generation.tool_formats import (
    HERMES,
    LLAMA,
    MISTRAL,
    ToolFormat,
    ToolFormats,
    format_of,
)

TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "clock"}},
]
TEMPLATES = {
    HERMES: "{% if tools %}<tool_call>{% endif %}",
    MISTRAL: "{% if tools %}[TOOL_CALLS]{% endif %}",
    LLAMA: '{% if tools %}{"name": f, "parameters": {}}{% endif %}',
}
BERN = {"city": "Bern"}


def read(form: ToolFormat, text: str, *, step: int = 1, **chat: Any) -> tuple[str, list[Any]]:
    """Content and calls of a text that comes in pieces of `step` characters."""
    reader = ToolFormats(TEMPLATES[form], frozenset()).reader({"tools": TOOLS, **chat}, None)
    content, calls = "", []
    for at in range(0, len(text), step):
        more, found = reader.add(text[at : at + step], [], finished=at + step >= len(text))
        content += more
        calls += found
    assert [call[0] for call in calls] == list(range(len(calls)))
    assert len({call[1] for call in calls}) == len(calls)
    return content, [(call[2], json.loads(call[3])) for call in calls]


def written(name: str, arguments: Any, key: str = "arguments") -> str:
    return json.dumps({"name": name, key: arguments})


ONE = f"<tool_call>\n{written('weather', BERN)}\n</tool_call>"
CASES = [
    (HERMES, "It is warm.", "It is warm.", []),
    (HERMES, ONE, "", [("weather", BERN)]),
    (HERMES, f"Let me see.{ONE}\n<tool_call>{written('clock', {})}</tool_call>", "Let me see.",
     [("weather", BERN), ("clock", {})]),
    (HERMES, f"<tool_call>\n{written('weather', BERN)}", "", [("weather", BERN)]),
    (HERMES, "a < b, <tool", "a < b, <tool", []),
    (HERMES, "<tool_call>no JSON</tool_call>", "<tool_call>no JSON", []),
    (HERMES, f"<tool_call>{written('unknown', {})}</tool_call>",
     f"<tool_call>{written('unknown', {})}", []),
    (MISTRAL, f"[TOOL_CALLS][{written('weather', BERN)}, {written('clock', {})}]", "",
     [("weather", BERN), ("clock", {})]),
    (MISTRAL, "[1] is a list.", "[1] is a list.", []),
    (LLAMA, written("weather", BERN, "parameters"), "", [("weather", BERN)]),
    (LLAMA, f"{written('weather', BERN, 'parameters')}; {written('clock', {}, 'parameters')}", "",
     [("weather", BERN), ("clock", {})]),
    (LLAMA, "It is warm.", "It is warm.", []),
    (LLAMA, '{"a": 1}', '{"a": 1}', []),
]  # fmt: skip


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(("form", "text", "content", "calls"), CASES)
def test_calls_are_found_however_the_text_is_cut(
    form: ToolFormat, text: str, content: str, calls: list[Any], step: int
) -> None:
    assert read(form, text, step=step) == (content, calls)


def test_one_call_is_given_where_more_are_not_wanted() -> None:
    text = f"{ONE}<tool_call>{written('clock', {})}</tool_call>"
    assert read(HERMES, text, parallel_tool_calls=False)[1] == [("weather", BERN)]


def test_a_call_that_is_cut_off_has_its_arguments_as_far_as_they_came() -> None:
    reader = ToolFormats(None, frozenset()).reader(
        {"tools": TOOLS, "tool_choice": "required"}, None
    )
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Be'
    _, [call] = reader.add(text, [], finished=True)
    assert call[2:] == ["weather", '{"city": "Be']


@pytest.mark.parametrize(
    ("template", "form"),
    [
        (None, HERMES),
        ("{{ messages }}", HERMES),
        *((text, form) for form, text in TEMPLATES.items()),
    ],
)
def test_the_form_is_what_the_template_teaches(template: str | None, form: ToolFormat) -> None:
    assert format_of(template) is form


def test_special_tokens_are_read_where_they_mark_calls() -> None:
    chat = {"tools": TOOLS}
    assert not ToolFormats(TEMPLATES[MISTRAL], frozenset()).reader(chat, None).keeps_special
    marked = ToolFormats(TEMPLATES[MISTRAL], frozenset({"[TOOL_CALLS]"}))
    assert marked.reader(chat, None).keeps_special


def test_parameters_that_no_grammar_can_say_are_refused_where_a_call_is_demanded() -> None:
    function = {"name": "f", "parameters": {"type": "array", "uniqueItems": True}}
    chat = {"tools": [{"type": "function", "function": function}]}
    forms = ToolFormats(None, frozenset())
    assert forms.reader(chat, None).grammar is None  # the model decides, and writes what it writes
    with pytest.raises(CallerError, match="uniqueItems") as caught:
        forms.reader(chat | {"tool_choice": "required"}, None)
    assert caught.value.param == "tools"
