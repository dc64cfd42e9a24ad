"""Every number of every door, as nobody sends it: refused or taken, never a failure of ours.

Which numbers there are is read from the shapes of the services and from the routes, so that a new
one is tried without anybody's remembering it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.python_models import BUSY_ECHO, python_model
from tests.kit.servers import Server

from penstock.api.autoscaling.operations import OPERATIONS as AUTOSCALING_OPERATIONS
from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.wire.aws.models import AUTOSCALING, CLOUDWATCH, RUNTIME, SAGEMAKER, service_model

pytestmark = pytest.mark.system

#: As JSON has them. 401 digits are more than a float has, 4,301 more than Python reads.
NUMBERS = (
    "1000000000", "2147483648", "9223372036854775808", "1000000000000000000", "1e12", "1e18",
    "1e19", "1" + "0" * 400, "1" + "0" * 4400, "-1", "-1000000000000000000", "1e308", "1e999",
    "-1e999", "NaN", "0.5", "1e-320", "true", '"1"', '"NaN"',
)  # fmt: skip
NUMERIC = ("integer", "long", "float", "double", "timestamp")
TARGETS = {
    SAGEMAKER: ("SageMaker", SAGEMAKER_OPERATIONS),
    AUTOSCALING: ("AnyScaleFrontendService", AUTOSCALING_OPERATIONS),
    CLOUDWATCH: ("GraniteServiceVersion20100801", CLOUDWATCH_OPERATIONS),
}
MARK = '"the number"'
#: Stands for a name that no request has had.
NEW = "a-new-name"
NAMES = itertools.count()
#: Deeper members of a shape that contains itself are the same again.
DEPTH_MAX = 9


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("numbers")
    server = Server(folder / "state").start()
    try:
        server.deploy("echo", python_model(folder / "echo", BUSY_ECHO))
        (folder / "data.csv").write_text("1,2\n")
        yield server, folder
    finally:
        server.kill()


def _known(folder: Path, operation: str) -> dict[str, Any]:
    """What members need to be so that the number beside them is looked at."""
    return {
        "EndpointName": "echo", "ModelName": "echo", "EndpointConfigName": "fresh",
        "InstanceType": "ml.local.small", "VariantName": "all", "S3DataType": "S3Prefix",
        "S3Uri": (folder / "data.csv").as_uri(), "S3OutputPath": (folder / "out").as_uri(),
        "ModelDataUrl": (folder / "echo").as_uri(), "ResourceId": "endpoint/echo/variant/all",
        "ServiceNamespace": "sagemaker", "PolicyType": "TargetTrackingScaling",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount", "Schedule": "rate(1 day)",
        "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance", "MetricName": "Latency",
        "Namespace": "Mine", "ComparisonOperator": "GreaterThanThreshold", "Statistic": "Average",
        "Stat": "Average", "Id": "m1", "Period": 60, "EvaluationPeriods": 1, "Threshold": 1.0,
        "StartTime": 1.7e9, "EndTime": 1.7e9 + 600, "MinCapacity": 1, "MaxCapacity": 2,
        "InstanceCount": 1, "Timestamp": 1.7e9, "Value": 1.0, "TargetValue": 1.0,
        "AdjustmentType": "ChangeInCapacity", "Type": "COPY_COUNT", "Expression": "m1 + 1",
        "TransformJobName": NEW, "InferenceComponentName": NEW, "AlarmName": NEW,
    } | ({"EndpointConfigName": NEW} if operation == "CreateEndpointConfig" else {})  # fmt: skip


def _requests(operation: str, shape: Any, known: dict[str, Any]) -> Iterator[str]:
    """Requests with one number each as the mark, and beside it what is required."""

    def built(shape: Any, name: str, depth: int) -> Any:
        if shape.type_name == "structure":
            return {
                member: built(shape.members[member], member, depth + 1)
                for member in shape.required_members
            } if depth < DEPTH_MAX else {}  # fmt: skip
        if shape.type_name == "list":
            return [built(shape.member, name, depth + 1)]
        if shape.type_name == "map":
            return {}
        if name in known:
            return known[name]
        if shape.type_name in NUMERIC:
            return max(1, shape.metadata.get("min") or 1)
        if shape.type_name == "boolean":
            return False
        enum = shape.metadata.get("enum")
        return enum[0] if enum else "a" * max(1, shape.metadata.get("min") or 1)

    def marked(shape: Any, name: str, depth: int) -> Iterator[Any]:
        if depth >= DEPTH_MAX:
            return
        if shape.type_name == "structure":
            for member, inner in shape.members.items():
                for found in marked(inner, member, depth + 1):
                    yield built(shape, name, depth) | {member: found}
        elif shape.type_name == "list":
            yield from ([found] for found in marked(shape.member, name, depth + 1))
        elif shape.type_name in NUMERIC:
            yield json.loads(MARK)

    if shape is not None:
        for request in marked(shape, "", 0):
            yield json.dumps(request)


@pytest.mark.parametrize(
    ("service", "operation"),
    [(service, name) for service, (_, served) in TARGETS.items() for name in served],
)
def test_no_number_of_an_operation_is_a_failure_of_ours(
    site: tuple[Server, Path], service: str, operation: str
) -> None:
    server, folder = site
    target, _ = TARGETS[service]
    shape = service_model(service).operation_model(operation).input_shape
    headers = {
        "X-Amz-Target": f"{target}.{operation}", "Content-Type": "application/x-amz-json-1.1",
    }  # fmt: skip
    for template in _requests(operation, shape, _known(folder, operation)):
        for number in NUMBERS:
            body = template.replace(MARK, number).replace(NEW, f"n-{next(NAMES)}")
            status, answer = server.post("/", body.encode(), headers)
            assert status < 500, (number[:40], template, answer)
            if number == "1000000000" and _is_count(template):
                assert status == 400, (template, answer)
            assert isinstance(json.loads(answer or b"{}"), dict), answer


def _is_count(template: str) -> bool:
    """The number says how many instances or copies there are to be."""
    return any(f'{name}Count": {MARK}' in template for name in ("Instance", "Copy", "Min", "Max"))


#: Numbers in queries and paths of the admin API; `{}` stands for one.
ADMIN = (
    "/admin/endpoints/echo/copies/{}", "/admin/requests/{}", "/admin/endpoints/echo/logs?lines={}",
    "/admin/jobs?limit={}", "/admin/jobs/none/logs?lines={}", "/admin/schedules/none?runs={}",
    "/admin/endpoints/echo/scaling?at={}", "/admin/endpoints/echo/models?limit={}",
)  # fmt: skip


@pytest.mark.parametrize("path", ADMIN)
def test_no_number_of_a_query_is_a_failure_of_ours(site: tuple[Server, Path], path: str) -> None:
    server, _ = site
    for number in NUMBERS:
        status, answer = _get(server, path.format(number.strip('"')))
        assert status < 500, (number[:40], answer)
        assert isinstance(json.loads(answer), dict), answer


@pytest.mark.parametrize("member", ["starts", "ends"])
def test_a_moment_of_a_schedule_is_a_time_or_is_refused(
    site: tuple[Server, Path], member: str
) -> None:
    server, folder = site
    job = {
        "ModelName": "echo",
        "TransformInput": {
            "DataSource": {
                "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": (folder / "data.csv").as_uri()}
            }
        },
        "TransformOutput": {"S3OutputPath": (folder / "out").as_uri()},
        "TransformResources": {"InstanceType": "ml.local.small", "InstanceCount": 1},
    }
    for at, number in enumerate(NUMBERS):
        asked = {"expression": "rate(1 hour)", "job": job, member: json.loads(MARK)}
        body = json.dumps(asked).replace(MARK, number).encode()
        status, answer = server.post(f"/admin/schedules/{member}-{at}", body)
        assert status < 500, (number[:40], answer)
        told = json.loads(answer)
        if number.startswith("1e1") or len(number) > 12:
            assert (status, told["code"]) == (400, "schedule-invalid"), (number[:40], told)
    assert server.get("/admin/schedules")["schedules"] is not None


@pytest.mark.parametrize(
    "header",
    [
        "X-Penstock-Deadline-Ms", "X-Penstock-Room", "X-Amzn-SageMaker-Inference-Id",
        "X-Amzn-SageMaker-InvocationTimeoutSeconds", "X-Amzn-SageMaker-RequestTTLSeconds",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["invocations", "async-invocations"])
def test_no_number_of_a_header_is_a_failure_of_ours(
    site: tuple[Server, Path], path: str, header: str
) -> None:
    server, _ = site
    assert service_model(RUNTIME)
    for number in NUMBERS:
        headers = {header: number.strip('"')}
        status, answer = server.post(f"/endpoints/echo/{path}", b"[1]", headers)
        assert status < 500 or b"time that the request allowed" in answer, (number[:40], answer)
        json.loads(answer)


def _get(server: Server, path: str) -> tuple[int, bytes]:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(server.url + path, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
