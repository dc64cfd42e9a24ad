"""Which endpoint a name is for: from the newest routes, whatever order they come in."""

from __future__ import annotations

import random
from typing import Any, cast

from tests.gateway.test_endpoint_table import NoRecorders

from penstock.core.deployment.deployment import EndpointRoutes
from penstock.core.deployment.served_names import MODELS
from penstock.gateway.dispatch.endpoint_table import EndpointTable


def table() -> EndpointTable:
    return EndpointTable(random.Random(0), cast(Any, NoRecorders()))


def named(endpoint: str, **names: str) -> EndpointRoutes:
    return EndpointRoutes(endpoint=endpoint, variants=(), served_names=names)


def test_a_served_name_stands_for_its_endpoint_and_before_a_colon_too() -> None:
    made = table()
    names = {"a_1": "", "q:8b": "", "q": "", "t/m": "team/m", "own": ""}
    made.publish(named("own", **names))
    find = made.served.find
    assert find("a_1") == ("own", None)
    assert find("a_1:target:x") == ("own", "target:x")
    assert find("q:8b") == ("own", None), "the whole name wins over name:target"
    assert find("q:8b:target") == ("own", "target"), "and the longer one over the shorter"
    assert find("q:4b") == ("own", "4b")
    assert find("t/m") == ("own", "team/m")
    longest = "x" * 256
    made.publish(named("own", **names, **{longest: ""}))
    assert find(f"{longest}:target") == ("own", "target")
    assert find("own") is None, "this is the endpoint itself"
    for other in ("A_1", "a_1/x", "t/m:x", "other", "other:a_1", "", ":", "t", "x" * 5000 + ":a_1"):
        assert find(other) is None


def test_names_come_change_and_go_with_routes() -> None:
    made = table()
    changes: list[None] = []
    made.served.on_change.append(lambda: changes.append(None))
    made.publish(named("first", a="", b=""))
    assert len(changes) == 1
    made.publish(named("first", a="", b=""))
    assert len(changes) == 1, "the same routes change nothing"
    made.publish(named("first", b=""))
    assert (made.served.find("a"), made.served.find("b")) == (None, ("first", None))
    made.withdraw("first")
    assert made.served.find("b") is None
    assert len(changes) == 3


def test_a_name_that_moved_is_the_new_endpoints_whichever_routes_come_first() -> None:
    made = table()
    made.publish(named("first", a=""))
    made.publish(named("second", a=""))
    made.publish(named("first"))
    assert made.served.find("a") == ("second", None)
    made.withdraw("first")
    assert made.served.find("a") == ("second", None)


def test_a_name_that_nothing_has_is_a_target_models_where_an_endpoint_serves_all() -> None:
    made = table()
    made.publish(named("other", alias=""))
    changes: list[None] = []
    made.served.on_change.append(lambda: changes.append(None))
    made.publish(named("repository", **{MODELS: "", "best": "densenet_onnx"}))
    find = made.served.find
    assert find("densenet_onnx") == ("repository", "densenet_onnx")
    assert find("team/second") == ("repository", "team/second")
    assert find("best") == ("repository", "densenet_onnx")
    assert find("alias") == ("other", None)
    assert find("other") is None, "an endpoint has its own name"
    assert find("other:densenet_onnx") is None
    assert find("repository:densenet_onnx") is None
    assert find("") is None
    seen = len(changes)
    made.publish(named("late"))
    assert find("late") is None
    assert len(changes) == seen + 1, "who kept what the name was for is told"
    made.withdraw("late")
    assert find("late") == ("repository", "late")
    assert len(changes) == seen + 2
    made.withdraw("repository")
    assert find("densenet_onnx") is None
