"""Routes of inference components that are shadows of others: they are apart, with the share of the
requests that is copied to them, and no caller's request goes there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.test_core_reconcile_inference_components import SERVES, A, actions, deployment
from tests.kit.core_components import chat, copy, failed, revision

from penstock.core.deployment.capacity_spec import ComponentSpec, ShadowSpec
from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    ComparedRoutes,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    FAILED,
    UPDATING,
    DrainCopy,
    LoadCopy,
    PublishRoutes,
    SetComponent,
)
from penstock.core.endpoint.routes import decide
from penstock.core.rollout.agreement import AgreementSpec

CHAT = chat(1)
NEXT = replace(chat(1, name="next"), shadow=ShadowSpec("chat", 0.5))
COPIES = (copy(1), copy(2, of="next/1"))


def entry(name: str, number: int | None, **more: object) -> VariantRoutes:
    """A component of `blue`, with this copy."""
    copies = () if number is None else (CopyRoute(copy=number, instance_id="a", outstanding_max=8),)
    fields: dict[str, object] = {
        "weight": 1.0, "model": {"name": f"{name}/1"} if copies else {}, "config": "config-1",
    } | more  # fmt: skip
    return VariantRoutes(
        name="blue", strategy=LEAST_OUTSTANDING_REQUESTS, copies=copies, component=name,
        **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def shop(*answering: VariantRoutes, shadows: tuple[VariantRoutes, ...] = ()) -> EndpointRoutes:
    return EndpointRoutes(
        endpoint="shop", variants=answering, takes_components=True, shadows=shadows
    )


SHADOWED = shop(entry("chat", 1), shadows=(entry("next", 2, weight=0.5, shadow_of="chat"),))


def published(
    *components: ComponentSpec, before: EndpointRoutes | None = None
) -> tuple[PublishRoutes, ...]:
    return decide(deployment(), {"blue": COPIES}, before, "copies-changed", components)


def test_a_shadow_is_apart_from_what_answers_callers_with_its_share() -> None:
    assert published(CHAT, NEXT) == (PublishRoutes(SHADOWED, "endpoint-known"),)
    assert published(CHAT, NEXT, before=SHADOWED) == ()


def test_it_becomes_one_and_ceases_to_be_one_with_its_copies_where_they_are() -> None:
    plain = replace(NEXT, shadow=None)
    both = shop(entry("chat", 1), entry("next", 2))
    assert published(CHAT, NEXT, before=both) == (PublishRoutes(SHADOWED, "shadows-changed"),)
    assert published(CHAT, plain, before=SHADOWED) == (PublishRoutes(both, "shadows-changed"),)
    (more,) = published(CHAT, replace(NEXT, shadow=ShadowSpec("chat")), before=SHADOWED)
    assert (more.reason, [one.weight for one in more.routes.shadows]) == ("shadows-changed", [1.0])


def test_without_the_component_that_it_is_of_it_stays_a_shadow_and_waits_for_it() -> None:
    """Deleted, failed, or on its way out: what callers never called does not begin to answer them.
    One that comes under the name has it again, in its own spelling."""
    alone = shop(shadows=(entry("next", 2, weight=0.5, shadow_of="chat"),))
    assert published(NEXT, before=SHADOWED) == (PublishRoutes(alone, "copies-changed"),)
    for status in (DELETING, FAILED):
        (told,) = published(replace(CHAT, status=status), NEXT, before=SHADOWED)
        assert told.routes == alone
    (told,) = published(replace(CHAT, name="Chat"), NEXT, before=alone)
    assert [one.shadow_of for one in told.routes.shadows] == ["Chat"]
    assert [one.component for one in told.routes.variants] == ["Chat"]


@pytest.mark.parametrize("status", [DELETING, FAILED])
def test_a_shadow_that_ends_or_has_failed_has_no_routes(status: str) -> None:
    (told,) = published(CHAT, replace(NEXT, status=status), before=SHADOWED)
    assert told.routes == shop(entry("chat", 1))


def test_one_without_a_copy_is_in_the_routes_so_that_what_it_misses_is_counted() -> None:
    none = replace(SHADOWED, shadows=(entry("next", None, weight=0.5, shadow_of="chat"),))
    (told,) = decide(deployment(), {"blue": COPIES[:1]}, SHADOWED, "copies-changed", (CHAT, NEXT))
    assert told == PublishRoutes(none, "copies-changed")


def test_its_own_update_is_like_any_others() -> None:
    """Both revisions get copies of requests meanwhile, and their answers may be compared."""
    scores = AgreementSpec(slower_max=0.0)
    held = replace(revision(2, batch=1), agreement=scores, rollout=7)
    updated = replace(NEXT, status=UPDATING, target=held)
    copies = {"blue": (*COPIES, copy(3, of="next/2"))}
    (told,) = decide(deployment(), copies, SHADOWED, "copies-changed", (CHAT, updated))
    (dark,) = told.routes.shadows
    assert [(one.copy, one.incoming) for one in dark.copies] == [(2, False), (3, True)]
    assert dark.compared == ComparedRoutes(rollout=7, spec=scores)
    assert (dark.weight, dark.shadow_of) == (0.5, "chat")


def test_whole_its_life_is_that_of_any_component() -> None:
    new = replace(SERVES, components=(CHAT, replace(NEXT, status=CREATING)))
    only = replace(SHADOWED, shadows=(entry("next", None, weight=0.5, shadow_of="chat"),))
    assert actions(new, A, copies=COPIES[:1], published=shop(entry("chat", 1))) == (
        LoadCopy("a", "next/1", 1, 0, "copy-count"),
        PublishRoutes(only, "shadows-changed"),
    )
    assert actions(new, A, copies=COPIES, published=only) == (
        PublishRoutes(SHADOWED, "copies-changed"),
        SetComponent("next", "InService", 1, "copies-ready", "", 1),
    )
    (lost,) = actions(
        new, A, copies=COPIES[:1], published=only, failures=(failed(of="next/1"),), now=5.0
    )
    assert isinstance(lost, SetComponent)
    assert (lost.component, lost.status) == ("next", FAILED)
    ends = replace(SERVES, components=(CHAT, replace(NEXT, status=DELETING)))
    assert actions(ends, A, copies=COPIES, published=SHADOWED) == (
        PublishRoutes(shop(entry("chat", 1)), "shadows-changed"),
        DrainCopy("a", 2, "copy-count"),
    )
