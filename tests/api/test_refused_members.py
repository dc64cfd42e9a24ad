"""A member or parameter is read, refused by name, or known to have no effect: nothing is dropped
in silence, and docs/howto/refused.md, which is made of these tables, is whole."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kit.environments import python_of
from tests.kit.servers import ROOT

from penstock.api import refused_members
from penstock.api.autoscaling.operations import OPERATIONS as AUTOSCALING_OPERATIONS
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.sagemaker import security_members
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.artifacts.triton import refused_fields
from penstock.artifacts.triton.config import parse_config
from penstock.errors import CallerError
from penstock.instance.codecs.generation import openai_parameters
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH, RUNTIME, SAGEMAKER, service_model

SOURCE = ROOT / "src" / "penstock"
SERVED = (
    (SAGEMAKER, SAGEMAKER_OPERATIONS),
    (AUTOSCALING, AUTOSCALING_OPERATIONS),
    (CLOUDWATCH, CLOUDWATCH_OPERATIONS),
)
TABLES = (
    security_members.CARRIED_OUT,
    security_members.REFUSED,
    security_members.WITHOUT_MEANING,
    refused_members.REFUSED,
    refused_members.NO_EFFECT,
)
#: Members that are read without being named in the code: the policy's type makes their names.
MADE = {"StepScalingPolicyConfiguration", "TargetTrackingScalingPolicyConfiguration"}
CREATES = {"UpdateInferenceComponent": "CreateInferenceComponent"}


def words_of(folder: str) -> set[str]:
    """Whatever stands in quotes, or ends what does."""
    tables = {"refused_members.py", "security_members.py", "openai_parameters.py"}
    files = [path for path in (SOURCE / folder).rglob("*.py") if path.name not in tables]
    return {
        word
        for path in files
        for word in re.findall(r"""["'.](\w+)["']""", path.read_text(encoding="utf-8"))
    }


def unread() -> Iterator[str]:
    """Members of what is served that no line of the code names, without what is in them."""
    words = words_of("") | MADE

    def walk(shape: Any, path: str, depth: int) -> Iterator[str]:
        if shape.type_name == "list":
            yield from walk(shape.member, f"{path}[]", depth + 1)
        if shape.type_name == "structure" and depth < 10:
            for name, member in shape.members.items():
                if name not in words:
                    yield f"{path}.{name}"
                else:
                    yield from walk(member, f"{path}.{name}", depth + 1)

    for service, operations in SERVED:
        for name in operations:
            shape = service_model(service).operation_model(name).input_shape
            if shape is not None:
                yield from walk(shape, name, 0)


def in_a_table(path: str) -> bool:
    """It, what it is in, or all that is in it."""
    operation, _, rest = path.partition(".")
    whole = f"{CREATES.get(operation, operation)}.{rest}".replace(
        "Specifications[]", "Specification"
    )
    around = whole
    while around:
        if any(around in table for table in TABLES):
            return True
        around = around.rpartition(".")[0].removesuffix("[]")
    return any(one.startswith(f"{whole}.") for table in TABLES for one in table)


@pytest.mark.parametrize("path", sorted(unread()))
def test_a_member_that_nothing_reads_stands_in_a_table(path: str) -> None:
    assert in_a_table(path)


@pytest.mark.parametrize("path", [*refused_members.REFUSED, *refused_members.NO_EFFECT])
def test_the_tables_name_members_that_there_are(path: str) -> None:
    operation, _, rest = path.partition(".")
    service = next((one for one, served in SERVED if operation in served), RUNTIME)
    shape: Any = service_model(service).operation_model(operation).input_shape
    for name in filter(None, rest.split(".")):
        shape = shape.members[name.removesuffix("[]")]
        shape = shape.member if name.endswith("[]") else shape


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sequence_batching { iterative_sequence: true }", "iterative_sequence"),
        ("batch_input {}", "batch_input"),
        ("model_transaction_policy { decoupled: true }", "decoupled"),
        ("model_repository_agents { agents {} }", "agents"),
    ],
)
def test_a_field_of_triton_is_refused_with_the_words_of_the_table(text: str, name: str) -> None:
    cause, hint = refused_fields.REFUSED[name]
    with pytest.raises(CallerError, match=re.escape(f"{name} is not supported: {cause}")) as error:
        parse_config(text)
    assert not hint or error.value.hint == hint


@pytest.mark.parametrize("name", refused_fields.NO_EFFECT)
def test_a_field_of_triton_without_effect_is_taken(name: str) -> None:
    given = "runtime: 'x'" if name == "runtime" else f"{name} {{}}"
    assert parse_config(f"name: 'a' {given}") == parse_config("name: 'a'")


OPENAI = {
    "chat": "chat.completion_create_params.CompletionCreateParamsNonStreaming",
    "completions": "completion_create_params.CompletionCreateParamsNonStreaming",
    "responses": "responses.response_create_params.ResponseCreateParamsNonStreaming",
    "embeddings": "embedding_create_params.EmbeddingCreateParams",
}


@pytest.mark.integration
@pytest.mark.parametrize("operation", OPENAI)
def test_each_parameter_of_openais_client_is_read_or_stands_in_a_table(operation: str) -> None:
    module, _, name = OPENAI[operation].rpartition(".")
    ask = f"from openai.types.{module} import {name} as kind; print(*kind.__annotations__)"
    done = subprocess.run(
        [python_of("client-openai"), "-c", ask], capture_output=True, text=True, check=True
    )
    tables = (openai_parameters.REFUSED[operation], openai_parameters.NO_EFFECT[operation])
    known = {key.partition(" ")[0].partition(".")[0] for table in tables for key in table}
    known |= words_of("instance/codecs") | words_of("api/openai")
    assert set(done.stdout.split()) - {"model"} - known == set()
