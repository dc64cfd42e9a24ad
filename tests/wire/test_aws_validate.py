"""Constraint errors in AWS's words, against the real models and a small one of our own."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.model import ServiceModel

from penstock.wire.aws import models, patterns
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.validate import validate

OWN = ServiceModel(
    {
        "metadata": {},
        "operations": {},
        "shapes": {
            "Input": {
                "type": "structure",
                "required": ["Name"],
                "members": {
                    "Name": {"shape": "Name"},
                    "Names": {"shape": "Names"},
                    "Labels": {"shape": "Labels"},
                    "Secret": {"shape": "Secret"},
                    "Ratio": {"shape": "Ratio"},
                    "Blob": {"shape": "Blob"},
                    "Input": {"shape": "Input"},
                    "Inputs": {"shape": "Inputs"},
                },
            },
            "Inputs": {"type": "list", "member": {"shape": "Input"}},
            "Name": {"type": "string", "min": 2, "max": 4, "pattern": "[a-z]+"},
            "Names": {"type": "list", "member": {"shape": "Name"}, "max": 2},
            "Labels": {"type": "map", "key": {"shape": "Name"}, "value": {"shape": "Name"}},
            "Secret": {"type": "string", "max": 1, "sensitive": True},
            "Ratio": {"type": "double", "min": 0, "max": 1},
            "Blob": {"type": "blob", "max": 2},
        },
    }
)


def errors(params: dict[str, Any], shape: Any = None) -> list[str]:
    with pytest.raises(AwsError) as refused:
        validate(shape or OWN.shape_for("Input"), params)
    assert refused.value.code == "ValidationException"
    head, _, rest = refused.value.message.partition(" detected: ")
    found = rest.split("; ")
    assert head == f"{len(found)} validation error{'s' if len(found) > 1 else ''}"
    return found


def operation_errors(service: str, operation: str, params: dict[str, Any]) -> list[str]:
    return errors(params, models.service_model(service).operation_model(operation).input_shape)


def test_what_satisfies_the_model_passes() -> None:
    params = {"Name": "abc", "Names": ["ab"], "Labels": {"ab": "cd"}, "Ratio": 0.5, "Blob": b"ab"}
    validate(OWN.shape_for("Input"), params)
    validate(None, {})


def test_a_required_member_that_is_missing_is_null() -> None:
    assert errors({}) == [
        "Value null at 'name' failed to satisfy constraint: Member must not be null"
    ]


@pytest.mark.parametrize(
    ("params", "error"),
    [
        (
            {"Name": "a"},
            "Value 'a' at 'name' failed to satisfy constraint: "
            "Member must have length greater than or equal to 2",
        ),
        (
            {"Name": "abcde"},
            "Value 'abcde' at 'name' failed to satisfy constraint: "
            "Member must have length less than or equal to 4",
        ),
        (
            {"Name": "ab1"},
            "Value 'ab1' at 'name' failed to satisfy constraint: "
            "Member must satisfy regular expression pattern: [a-z]+",
        ),
        (
            {"Name": "ab", "Ratio": 1.5},
            "Value '1.5' at 'ratio' failed to satisfy constraint: "
            "Member must have value less than or equal to 1",
        ),
        (
            {"Name": "ab", "Ratio": float("nan")},
            "Value 'nan' at 'ratio' failed to satisfy constraint: "
            "Member must have value greater than or equal to 0",
        ),
        (
            {"Name": "ab", "Blob": b"abc"},
            "Value '3 bytes' at 'blob' failed to satisfy constraint: "
            "Member must have length less than or equal to 2",
        ),
        (
            {"Name": "ab", "Names": ["ab", "cd", "ef"]},
            "Value '[ab, cd, ef]' at 'names' failed to satisfy constraint: "
            "Member must have length less than or equal to 2",
        ),
        (
            {"Name": "ab", "Names": ["ab", "x"]},
            "Value '[ab, x]' at 'names' failed to satisfy constraint: Member must satisfy "
            "constraint: [Member must have length greater than or equal to 2]",
        ),
        (
            {"Name": "ab", "Names": ["ab", None]},
            "Value null at 'names.2.member' failed to satisfy constraint: Member must not be null",
        ),
        (
            {"Name": "ab", "Labels": {"X1": "cd"}},
            "Value '{X1=cd}' at 'labels' failed to satisfy constraint: Map keys must satisfy "
            "constraint: [Member must satisfy regular expression pattern: [a-z]+]",
        ),
        (
            {"Name": "ab", "Labels": {"ab": "c"}},
            "Value '{ab=c}' at 'labels' failed to satisfy constraint: Map value must satisfy "
            "constraint: [Member must have length greater than or equal to 2]",
        ),
        (
            {"Name": "ab", "Secret": "hidden"},
            "Value at 'secret' failed to satisfy constraint: "
            "Member must have length less than or equal to 1",
        ),
        (
            {"Name": "ab", "Input": {"Inputs": [{"Name": "ab"}, {"Input": {}, "Name": "ab"}]}},
            "Value null at 'input.inputs.2.member.input.name' failed to satisfy constraint: "
            "Member must not be null",
        ),
    ],
)
def test_each_constraint_has_its_text(params: dict[str, Any], error: str) -> None:
    assert error in errors(params)


def test_all_that_is_wrong_is_said_at_once_up_to_a_bound() -> None:
    assert len(errors({"Ratio": 2.0, "Blob": b"abc"})) == 3
    many = {"Name": "ab", "Inputs": [{} for _ in range(1000)]}
    with pytest.raises(AwsError) as refused:
        validate(OWN.shape_for("Input"), many)
    assert refused.value.message.startswith("1000 validation errors detected: ")
    assert len(refused.value.message) < 5000


def test_a_long_value_is_not_repeated_in_full() -> None:
    with pytest.raises(AwsError) as refused:
        validate(OWN.shape_for("Input"), {"Name": "a" * 1_000_000})
    assert len(refused.value.message) < 3000


def test_another_code_where_the_service_has_another() -> None:
    with pytest.raises(AwsError) as refused:
        validate(OWN.shape_for("Input"), {}, code="ValidationError")
    assert refused.value.code == "ValidationError"


def test_a_name_in_sagemaker_matches_as_a_whole() -> None:
    params = {"EndpointName": "a_b", "EndpointConfigName": "c"}
    (error,) = operation_errors(models.SAGEMAKER, "CreateEndpoint", params)
    assert error.startswith(
        "Value 'a_b' at 'endpointName' failed to satisfy constraint: "
        "Member must satisfy regular expression pattern: "
    )


def test_an_enum_lists_what_is_allowed() -> None:
    params = {"PolicyName": "p", "ResourceId": "endpoint/e/variant/v", "PolicyType": "X"} | {
        "ServiceNamespace": "sagemaker",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    (error,) = operation_errors(models.AUTOSCALING, "PutScalingPolicy", params)
    assert error.startswith(
        "Value 'X' at 'policyType' failed to satisfy constraint: "
        "Member must satisfy enum value set: [PredictiveScaling, StepScaling, TargetTrackingScaling"
    )


def test_instance_types_of_our_own_pass_and_other_names_do_not() -> None:
    def variants(instance_type: str) -> dict[str, Any]:
        variant = {"VariantName": "v", "ModelName": "m", "InstanceType": instance_type}
        return {"EndpointConfigName": "c", "ProductionVariants": [variant]}

    shape = models.service_model(models.SAGEMAKER).operation_model("CreateEndpointConfig")
    for name in ("ml.m5.large", "ml.local.small", "ml.p99.48xlarge"):
        validate(shape.input_shape, variants(name))
    (error,) = errors(variants("m5.large"), shape.input_shape)
    assert "'productionVariants.1.member.instanceType'" in error


@pytest.mark.parametrize(
    ("java", "matches", "refuses"),
    [
        (r"\p{ASCII}*", "a~\x00", "é"),
        (r"\A\S[\p{Print}]*\z", "a b", " a"),
        (r"arn:[\p{Alnum}\-]+", "arn:aws-cn", "arn:é"),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*", "a😹\t", "a\x01"),
        (r"[a-z\[]+", "a[", "]"),
    ],
)
def test_javas_patterns_are_read_in_pythons_dialect(java: str, matches: str, refuses: str) -> None:
    compiled = patterns.compiled(java)
    assert compiled is not None
    assert compiled.fullmatch(matches)
    assert not compiled.fullmatch(refuses)


@pytest.mark.parametrize("java", [r"[\p{L}\p{N}]*", "[a-z[A-Z]]", "(a", r"([x]*)${1,128}"])
def test_a_pattern_that_python_cannot_express_is_not_checked(java: str) -> None:
    assert patterns.compiled(java) is None


def test_a_file_uri_is_as_good_as_s3_where_an_artifact_is_asked_for() -> None:
    """AWS's pattern knows s3 and https only; here models also lie on the machine itself."""
    shape = models.service_model(models.SAGEMAKER).operation_model("CreateModel").input_shape
    ask = {"ModelName": "m", "PrimaryContainer": {"ModelDataUrl": "file:///models/m"}}
    validate(shape, ask)
    ask = {"ModelName": "m", "PrimaryContainer": {"ModelDataUrl": "ftp://host/m"}}
    with pytest.raises(AwsError, match="regular expression pattern"):
        validate(shape, ask)
