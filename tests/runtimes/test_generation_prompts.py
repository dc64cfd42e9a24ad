"""Chats as prompts: what a template is given of tools and of calls that were made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.kit.generation_models import write_tokenizer

from penstock.errors import CallerError
from penstock.runtimes.generation.prompts import Prompts

pytest.importorskip("jinja2", reason="the extra `generate` is not installed")

TEMPLATE = (
    "{% if tools %}[{% for tool in tools %}{{ tool | tojson }}{% endfor %}]{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}({{ call.function.name }}"
    "{{ call.function.arguments | tojson }}){% endfor %}{% endfor %}"
)
TOOL = {"type": "function", "function": {"name": "weather"}}


def rendered(folder: Path, **chat: Any) -> str:
    write_tokenizer(folder, template=TEMPLATE)
    return Prompts(folder).render(chat)


def test_a_template_gets_the_tools_as_they_came(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "Hot?"}]
    assert rendered(tmp_path, messages=asked) == "<user>Hot?"
    assert rendered(tmp_path, messages=asked, tools=[TOOL]) == f"[{json.dumps(TOOL)}]<user>Hot?"


@pytest.mark.parametrize(
    ("arguments", "written"),
    [('{"city": "Bern"}', '{"city": "Bern"}'), ("", "{}"), ("{torn", '"{torn"')],
)
def test_arguments_of_earlier_calls_are_objects_again(
    tmp_path: Path, arguments: str, written: str
) -> None:
    """Clients send them as text; templates write them as JSON, which would quote a text again."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "21"},
    ]
    assert rendered(tmp_path, messages=messages) == f"<assistant>(f{written})<tool>21"


def test_special_tokens_are_text_only_where_they_are_asked_for(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    prompts = Prompts(tmp_path)
    ids = prompts.tokens("a</s>", tokens_max=10)
    assert prompts.decode(ids) == "a"
    assert prompts.decode_all(ids) == "<s>a</s>"


def test_a_message_that_is_gone_on_with_ends_the_prompt_exactly_where_it_ends(
    tmp_path: Path,
) -> None:
    """Whatever a template writes behind a message is left out, and its last space is kept."""
    template = (
        "{% for message in messages %}<{{ message.role }}>{{ message.content | trim }}</end>"
        "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    write_tokenizer(tmp_path, template=template)
    prompts = Prompts(tmp_path)
    messages = [
        {"role": "user", "content": "Count"},
        {"role": "assistant", "content": "one, two, "},
    ]
    chat = {"messages": messages, "continue_final_message": True}
    assert prompts.render(chat) == "<user>Count</end><assistant>one, two, "
    with pytest.raises(CallerError, match="must be the last one"):
        prompts.render({"messages": messages[:1], "continue_final_message": True})
    with pytest.raises(CallerError, match="must not be true"):
        prompts.render({**chat, "add_generation_prompt": True})


def test_a_template_that_leaves_the_last_message_out_cannot_go_on_with_it(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, template="{{ messages[0].content }}")
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(CallerError, match="leaves out the message"):
        Prompts(tmp_path).render({"messages": messages, "continue_final_message": True})
