"""What the tag of an inference component may say of whose shadow it is, and which components can be
one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.kit.core_components import chat, revision

from penstock.core.deployment.capacity_spec import ComponentSpec, ShadowSpec
from penstock.core.deployment.shadow_tag import TAG, check, of_tags, parsed
from penstock.errors import CallerError

CHAT, RANK = chat(1), chat(1, name="rank")


def shadow(name: str, source: str) -> ComponentSpec:
    return replace(chat(1, name=name), shadow=ShadowSpec(source))


def adapter(name: str, base: str) -> ComponentSpec:
    return chat(0, name=name, active=replace(revision(), base=base))


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        ("chat", ShadowSpec("chat", 1.0)),
        ("chat share=0.25", ShadowSpec("chat", 0.25)),
        ("  chat   share=1 ", ShadowSpec("chat", 1.0)),
        ("chat share=1e-3", ShadowSpec("chat", 0.001)),
    ],
)
def test_it_names_a_component_and_may_say_which_share(value: str, spec: ShadowSpec) -> None:
    assert parsed(value) == spec
    assert of_tags({"team": "search", TAG: value}) == spec


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "it names no component"),
        (" ", "it names no component"),
        ("share=0.5", "it names no component"),
        ("chat share=0", "'share=0' has to be share= with a number above 0, and at most 1"),
        ("chat share=1.01", "'share=1.01' has to be share= with a number above 0"),
        ("chat share=-1", "'share=-1' has to be"),
        ("chat share=nan", "'share=nan' has to be"),
        ("chat share=half", "'share=half' has to be"),
        ("chat share=", "'share=' has to be"),
        ("chat 0.5", "'0.5' has to be share="),
        ("chat share=0.5 rank", "there is nothing to be said by 'rank'"),
    ],
)
def test_what_says_nothing_sensible_is_refused_and_where_it_is_stored_says_nothing(
    value: str, says: str
) -> None:
    with pytest.raises(CallerError, match=re.escape(says)) as raised:
        parsed(value)
    assert raised.value.code == "shadow-invalid"
    assert of_tags({TAG: value}) is None


def test_a_component_without_the_tag_is_no_shadow() -> None:
    assert of_tags({}) is None
    assert of_tags({"penstock:agreement": "chat"}) is None


@pytest.mark.parametrize(
    ("source", "others"),
    [
        ("chat", (CHAT,)),
        ("CHAT", (CHAT, RANK)),
        ("chat", (CHAT, RANK, shadow("rank-next", "rank"))),
        ("chat", (replace(CHAT, variant="green"),)),
        ("lora", (CHAT, adapter("lora", "chat"))),
        ("chat", (CHAT, adapter("lora", "chat"))),
    ],
)
def test_any_component_of_the_endpoint_that_answers_callers_may_have_one(
    source: str, others: tuple[ComponentSpec, ...]
) -> None:
    """On another variant's instances, too; an adapter, and one that has adapters."""
    check("next", ShadowSpec(source), "", others)


@pytest.mark.parametrize(
    ("source", "base", "others", "says"),
    [
        ("chat", "", (RANK,), "its endpoint has no inference component 'chat'"),
        ("Next", "", (CHAT,), "'next' can't be the shadow of itself"),
        ("chat", "chat", (CHAT,), "'next' is an adapter: its copies are those of 'chat', which"),
        ("chat", "rank", (CHAT, RANK), "'next' is an adapter: its copies are those of 'rank'"),
        ("chat", "", (shadow("chat", "rank"), RANK), "'chat' is a shadow itself, of 'rank'"),
        ("chat", "", (CHAT, shadow("rank", "NEXT")), "'next' has a shadow itself, 'rank'"),
        ("Chat", "", (CHAT, shadow("rank", "chat")), "'chat' has a shadow already, 'rank'"),
        ("chat", "", (CHAT, adapter("lora", "Next")), "'next' is the base of 'lora'"),
    ],
)
def test_what_could_get_no_copies_or_would_get_them_twice_is_refused(
    source: str, base: str, others: tuple[ComponentSpec, ...], says: str
) -> None:
    with pytest.raises(CallerError, match=re.escape(says)) as raised:
        check("next", ShadowSpec(source), base, others)
    assert raised.value.code == "shadow-invalid"
