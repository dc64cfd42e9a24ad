"""The tag `penstock:shadow-of` of an inference component on the wire: where it may be given, what
is refused, and what Describe says of a shadow that gets nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_sagemaker_components import config, create, model
from tests.api.test_sagemaker_operations import ARN, SagemakerPlane, error, in_service

from penstock.control.store.store import Store
from penstock.core.deployment.capacity_spec import ComponentSpec, ShadowSpec
from penstock.core.deployment.endpoint_state import SetComponent
from penstock.core.deployment.shadow_tag import TAG

ADAPTER = {"BaseInferenceComponentName": "chat", "Container": {"ArtifactUrl": "file:///lora"}}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[SagemakerPlane]:
    """`chat` and `rank` are in service on endpoint `shop`; endpoint `other` has none."""
    made = SagemakerPlane(tmp_path / "state")
    model(made, "chat")
    assert config(made)[0] == 200
    for name in ("shop", "other"):
        answer = made.call("CreateEndpoint", EndpointName=name, EndpointConfigName="takes")
        assert answer[0] == 200
        in_service(made, name)
    for name in ("chat", "rank"):
        assert create(made, name)[0] == 200
        serves(made, name)
    made.doorbell.rung.clear()
    yield made
    made.close()


def serves(plane: SagemakerPlane, name: str) -> None:
    """What the reconciler records."""
    copies = plane.store(Store.describe_component, name).desired.copies
    action = SetComponent(name, "InService", copies, "any")
    plane.store(Store.set_component, "shop", action, now=plane.clock.wall())


def tags(value: str) -> list[dict[str, str]]:
    return [{"Key": TAG, "Value": value}]


def shadow(
    plane: SagemakerPlane, value: str, name: str = "next", **more: Any
) -> tuple[int, dict[str, Any]]:
    return create(plane, name, Tags=tags(value), **more)


def tag(plane: SagemakerPlane, name: str, value: str) -> tuple[int, dict[str, Any]]:
    arn = f"{ARN}:inference-component/{name}"
    return plane.call("AddTags", ResourceArn=arn, Tags=tags(value))


def untag(plane: SagemakerPlane, name: str) -> int:
    arn = f"{ARN}:inference-component/{name}"
    return plane.call("DeleteTags", ResourceArn=arn, TagKeys=[TAG])[0]


def component(plane: SagemakerPlane, name: str) -> ComponentSpec:
    """As its endpoint's reconciler reads it."""
    found = plane.store(Store.describe_endpoint, "shop").components
    (one,) = [each for each in found if each.name == name]
    alone = plane.store(Store.describe_component, name).desired
    assert alone.shadow == one.shadow
    spec: ComponentSpec = one
    return spec


def reason(plane: SagemakerPlane, name: str) -> str:
    _, described = plane.call("DescribeInferenceComponent", InferenceComponentName=name)
    return str(described.get("FailureReason", ""))


def refused(cause: str) -> tuple[int, dict[str, str]]:
    return error(
        f"The tag {TAG} can't be so: {cause}. Write the name of an inference component of the same"
        " endpoint, and share=0.5 where only a part of its requests is to be copied."
    )


def test_a_component_is_made_a_shadow_when_it_is_created(plane: SagemakerPlane) -> None:
    assert shadow(plane, "Chat share=0.25")[0] == 200
    assert component(plane, "next").shadow == ShadowSpec("Chat", 0.25)
    assert component(plane, "chat").shadow is None


def test_it_becomes_one_later_and_ceases_to_be_one(plane: SagemakerPlane) -> None:
    """Its endpoint hears of each change."""
    assert tag(plane, "rank", "chat") == (200, {"Tags": tags("chat")})
    assert component(plane, "rank").shadow == ShadowSpec("chat")
    assert tag(plane, "rank", "chat share=0.5")[0] == 200
    assert component(plane, "rank").shadow == ShadowSpec("chat", 0.5)
    assert untag(plane, "rank") == 200
    assert component(plane, "rank").shadow is None
    assert plane.doorbell.rung == ["shop"] * 3


def test_a_tag_of_something_else_is_only_a_tag(plane: SagemakerPlane) -> None:
    arn = f"{ARN}:endpoint/shop"
    assert plane.call("AddTags", ResourceArn=arn, Tags=tags("nobody share=9"))[0] == 200
    arn = f"{ARN}:inference-component/chat"
    other = [{"Key": "penstock:shadow", "Value": "rank"}]
    assert plane.call("AddTags", ResourceArn=arn, Tags=other)[0] == 200
    assert component(plane, "chat").shadow is None


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("nobody", "its endpoint has no inference component 'nobody'"),
        ("next", "'next' can't be the shadow of itself"),
        ("", "it names no component"),
        ("chat share=0", "'share=0' has to be share= with a number above 0, and at most 1"),
        ("chat share=2", "'share=2' has to be share= with a number above 0, and at most 1"),
        ("chat rank", "'rank' has to be share= with a number above 0, and at most 1"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_is_made_or_changed(
    plane: SagemakerPlane, value: str, cause: str
) -> None:
    assert shadow(plane, value) == refused(cause)
    assert create(plane, "next")[0] == 200, "nothing has its name"
    assert tag(plane, "next", value) == refused(cause)
    assert component(plane, "next").shadow is None


def test_a_component_of_another_endpoint_is_none_of_this_one(plane: SagemakerPlane) -> None:
    assert shadow(plane, "chat", EndpointName="other") == refused(
        "its endpoint has no inference component 'chat'"
    )


def test_one_that_is_being_deleted_is_there_no_more(plane: SagemakerPlane) -> None:
    assert plane.call("DeleteInferenceComponent", InferenceComponentName="chat")[0] == 200
    assert shadow(plane, "chat") == refused("its endpoint has no inference component 'chat'")


def test_a_shadow_has_none_and_is_of_none(plane: SagemakerPlane) -> None:
    assert shadow(plane, "chat")[0] == 200
    cause = "'next' is a shadow itself, of 'chat'"
    assert shadow(plane, "next", "third") == refused(cause)
    assert tag(plane, "rank", "next") == refused(cause)
    assert tag(plane, "chat", "rank") == refused("'chat' has a shadow itself, 'next'")


def test_a_component_has_one(plane: SagemakerPlane) -> None:
    assert shadow(plane, "chat")[0] == 200
    cause = "'chat' has a shadow already, 'next'"
    assert shadow(plane, "chat share=0.5", "third") == refused(cause)
    assert tag(plane, "rank", "chat") == refused(cause)
    assert tag(plane, "next", "chat share=0.5")[0] == 200, "but its own share may change"
    assert plane.call("DeleteInferenceComponent", InferenceComponentName="next")[0] == 200
    assert tag(plane, "rank", "chat")[0] == 200, "the other one ends"


def test_an_adapter_and_a_base_are_none(plane: SagemakerPlane) -> None:
    lora = {"Specification": ADAPTER, "RuntimeConfig": None}
    cause = "'lora' is an adapter: its copies are those of 'chat', which answer callers"
    assert shadow(plane, "rank", "lora", **lora) == refused(cause)
    assert create(plane, "lora", **lora)[0] == 200
    assert tag(plane, "lora", "rank") == refused(cause)
    assert tag(plane, "chat", "rank") == refused(
        "'chat' is the base of 'lora', which answers callers"
    )
    assert tag(plane, "rank", "lora")[0] == 200, "but it may have one"


def test_an_adapter_on_a_shadow_is_refused(plane: SagemakerPlane) -> None:
    assert tag(plane, "chat", "rank")[0] == 200
    status, answer = create(plane, "lora", Specification=ADAPTER, RuntimeConfig=None)
    assert status == 400
    assert answer["message"].endswith(
        f'on base "{ARN}:inference-component/chat": it is a shadow, of rank, and answers no caller.'
    )


def test_the_source_can_be_deleted_and_the_shadow_says_that_it_gets_nothing(
    plane: SagemakerPlane,
) -> None:
    assert shadow(plane, "chat")[0] == 200
    serves(plane, "next")
    assert reason(plane, "next") == reason(plane, "chat") == ""
    assert plane.call("DeleteInferenceComponent", InferenceComponentName="chat")[0] == 200
    nothing = (
        "It is the shadow of 'chat', which is no component of endpoint 'shop' that answers callers:"
        " no request is copied to it."
    )
    assert reason(plane, "next") == nothing
    plane.store(Store.forget_component, "shop", "chat")
    assert reason(plane, "next") == nothing
    assert component(plane, "next").shadow == ShadowSpec("chat")
    cause = "'chat' has a shadow itself, 'next'"
    assert shadow(plane, "rank", "chat") == refused(cause), "its old shadow waits for it"
    assert create(plane, "CHAT")[0] == 200
    assert reason(plane, "next") == ""


def test_an_update_keeps_it_a_shadow(plane: SagemakerPlane) -> None:
    assert shadow(plane, "chat share=0.5")[0] == 200
    serves(plane, "next")
    specification = {
        "ModelName": "chat",
        "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 256},
    }
    updated = plane.call(
        "UpdateInferenceComponent", InferenceComponentName="next", Specification=specification
    )
    assert updated[0] == 200
    assert component(plane, "next").target is not None
    assert component(plane, "next").shadow == ShadowSpec("chat", 0.5)
