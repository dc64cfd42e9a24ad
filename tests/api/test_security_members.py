"""No member that promises security is accepted in silence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.api.autoscaling.operations import OPERATIONS as AUTOSCALING_OPERATIONS
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.api.sagemaker.security_members import CARRIED_OUT, REFUSED, WITHOUT_MEANING, check
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH, SAGEMAKER, service_model

#: Words in the names of members that promise something. A new one of AWS's is found by them.
PROMISES = re.compile(
    "kms|vpc|subnet|role|encrypt|isolat|secur|capture|auth|access|credential|acl|tls|certif|secret"
    "|password|eula|explainer|serverless|trust|private|public|coredump|additionalmodel",
    re.IGNORECASE,
)
SERVED = (
    (SAGEMAKER, SAGEMAKER_OPERATIONS),
    (AUTOSCALING, AUTOSCALING_OPERATIONS),
    (CLOUDWATCH, CLOUDWATCH_OPERATIONS),
)
TABLES = (CARRIED_OUT, REFUSED, WITHOUT_MEANING)


def members() -> dict[str, Any]:
    """Path -> shape, of all members of what is served whose names promise something."""
    found: dict[str, Any] = {}

    def walk(shape: Any, path: str, depth: int) -> None:
        if shape.type_name == "structure" and depth < 10:
            for name, member in shape.members.items():
                if PROMISES.search(name):
                    found[f"{path}.{name}"] = member
                walk(member, f"{path}.{name}", depth + 1)
        elif shape.type_name == "list":
            walk(shape.member, f"{path}[]", depth + 1)

    for service, operations in SERVED:
        for name in operations:
            shape = service_model(service).operation_model(name).input_shape
            if shape is not None:
                walk(shape, name, 0)
    return found


def places(path: str) -> Iterator[str]:
    """It, and the members that it is a part of."""
    while "." in path:
        yield path
        path = path.rpartition(".")[0].removesuffix("[]")


@pytest.mark.parametrize("path", members())
def test_each_stands_in_a_table(path: str) -> None:
    tables = [table for table in TABLES if path in table]
    assert len(tables) <= 1
    assert tables or any(place in table for place in places(path) for table in TABLES[1:]), path


def test_the_tables_name_members_that_there_are() -> None:
    known = members()
    lists = {path.replace("[].", ".") for path in known}
    for table in TABLES:
        for path in table:
            assert path in known or path.replace("[].", ".") in lists, path


def request(path: str, shape: Any) -> dict[str, Any]:
    """One with this member alone."""
    scalar = {"string": "alias/ours", "boolean": True, "integer": 1}.get(shape.type_name)
    return _with(path, scalar if scalar is not None else {"A": "b"})


def _with(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")[1:]):
        value = {name.removesuffix("[]"): [value]} if name.endswith("[]") else {name: value}
    return dict(value)


@pytest.mark.parametrize("path", REFUSED)
def test_what_is_refused_is_refused_by_its_name(path: str) -> None:
    operation, _, member = path.partition(".")
    with pytest.raises(AwsError) as refused:
        check(operation, request(path, members()[path]))
    name = member.replace("[]", "")
    assert refused.value.message.startswith(f"{name} is not supported")
    assert refused.value.message.endswith(f"Leave {name} out.")


@pytest.mark.parametrize("path", REFUSED)
def test_what_asks_for_nothing_is_not_refused(path: str) -> None:
    """Clients that write all members of a shape send empty ones."""
    operation, shape = path.partition(".")[0], members()[path]
    check(operation, _with(path, None))
    if shape.type_name == "structure":
        check(operation, _with(path, {}))
        check(operation, _with(path, {"A": "", "B": [], "C": {"D": False}, "E": [{"F": None}]}))
    elif shape.type_name == "list":
        check(operation, _with(path, []))
    else:
        check(operation, _with(path, False if shape.type_name == "boolean" else ""))


@pytest.mark.parametrize("path", [*CARRIED_OUT, *WITHOUT_MEANING])
def test_what_is_accepted_is_not_refused(path: str) -> None:
    check(path.partition(".")[0], request(path, members()[path]))
