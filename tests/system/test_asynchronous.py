"""Asynchronous inference with real processes: boto3 unmodified, objects, notifications, scaling."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit.asynchronous import SQUARES, AsyncSite, subscriber
from tests.kit.polling import wait_until
from tests.kit.processes import memory_bytes
from tests.kit.servers import Server
from tests.system.test_scaling import activities, served, settings, variant

pytestmark = pytest.mark.system

TOPIC = "arn:aws:sns:us-east-1:123456789012:later"
#: Alarms of standard resolution whose periods are as long as metrics of a backlog are apart.
QUICK = {
    "PENSTOCK_SCALING_STANDARD_PERIOD_S": "10",
    "PENSTOCK_SCALING_STANDARD_HIGH_PERIODS": "1",
    "PENSTOCK_SCALING_STANDARD_LOW_PERIODS": "1",
}


def path_of(uri: str) -> Path:
    assert uri.startswith("file:///")
    return Path(uri.removeprefix("file://"))


def refused(call: Callable[..., Any], **members: Any) -> str:
    with pytest.raises(ClientError) as raised:
        call(**members)
    error = raised.value.response["Error"]
    assert error["Code"] in {"ValidationException", "ValidationError"}, error
    return str(error["Message"])


def test_answers_and_failures_lie_where_they_were_said_to(
    fresh_server: Server, tmp_path: Path
) -> None:
    site = AsyncSite(fresh_server, tmp_path)
    site.model()
    site.endpoint("later", ClientConfig={"MaxConcurrentInvocationsPerInstance": 3})
    runtime, client = fresh_server.client("sagemaker-runtime"), fresh_server.client("sagemaker")
    asked = {"EndpointName": "later", "ContentType": "application/json"}

    inline = runtime.invoke_endpoint_async(**asked, Body=b'{"number": 4}')
    assert inline["ResponseMetadata"]["HTTPStatusCode"] == 202
    (tmp_path / "in.json").write_text('{"number": 5}')
    located = runtime.invoke_endpoint_async(
        **asked, InputLocation=(tmp_path / "in.json").as_uri(), InferenceId="five"
    )
    assert located["InferenceId"] == "five"
    broken = runtime.invoke_endpoint_async(**asked, Body=b'{"nmber": 4}')
    absent = runtime.invoke_endpoint_async(**asked, InputLocation=(tmp_path / "no").as_uri())
    for told, answer in ((inline, 16), (located, 25)):
        output = path_of(told["OutputLocation"])
        wait_until(output.exists, seconds=30, what=f"the answer {answer}")
        assert json.loads(output.read_bytes())["squared"] == answer
    for told, code in ((broken, "model-code-failed"), (absent, "input-not-found")):
        failure = path_of(told["FailureLocation"])
        wait_until(failure.exists, seconds=30, what=code)
        assert json.loads(failure.read_bytes())["ErrorCode"] == code
        assert not path_of(told["OutputLocation"]).exists()

    def waits() -> int:
        [queue] = fresh_server.get("/admin/asynchronous")["queues"]
        assert queue["endpoint"] == "later"
        return int(queue["backlog"])

    wait_until(lambda: waits() == 0, seconds=30, what="an empty queue")
    described = client.describe_endpoint(EndpointName="later")["AsyncInferenceConfig"]
    kept = client.describe_endpoint_config(EndpointConfigName="later")["AsyncInferenceConfig"]
    assert described == kept
    assert described["ClientConfig"] == {"MaxConcurrentInvocationsPerInstance": 3}
    assert "InvokeEndpointAsync" in refused(runtime.invoke_endpoint, **asked, Body=b"{}")


def test_a_request_that_ends_its_workers_fails_alone_and_the_others_are_answered(
    fresh_server: Server, tmp_path: Path
) -> None:
    code = SQUARES.replace("def predict_fn", "import os\ndef predict_fn").replace(
        "    time.sleep", '    if data.get("poison"): os._exit(3)\n    time.sleep'
    )
    site = AsyncSite(fresh_server, tmp_path)
    site.model("poisoned", code)
    site.endpoint("poisonable", model="poisoned")
    [before] = fresh_server.copies("poisonable")
    for number in range(12):
        poison = {"poison": True} if number == 3 else {}
        assert site.ask("poisonable", {"number": number} | poison, f"{number}.json")
    told = wait_until(site.failures, seconds=90, what="the failure")
    assert {name: one["ErrorCode"] for name, one in told.items()} == {
        "3-error.out": "model-worker-died"
    }
    wait_until(lambda: len(site.answers()) == 11, seconds=30, what="the other answers")

    def ready() -> bool:
        [copy] = fresh_server.copies("poisonable")
        assert copy["pid"] == before["pid"], "workers are started again, the copy is not given up"
        return bool(copy["state"] == "ready")

    wait_until(ready, seconds=30, what="its worker's next start")


def test_what_could_never_work_is_refused_with_the_configuration(
    fresh_server: Server, tmp_path: Path
) -> None:
    site = AsyncSite(fresh_server, tmp_path)
    site.model()
    (tmp_path / "file").touch()

    def words(**output: Any) -> str:
        return refused(lambda: site.endpoint("later", output=output))

    assert "can't be written" in words(S3OutputPath=(tmp_path / "file" / "out").as_uri())
    assert "can't be written" in words(S3FailurePath=(tmp_path / "file" / "bad").as_uri())
    assert "s3:// or a file:///" in words(S3OutputPath="https://bucket/out")
    assert "control.topics" in words(NotificationConfig={"SuccessTopic": TOPIC})
    without = {"AsyncInferenceConfig": {"OutputConfig": {}}, "EndpointConfigName": "without"}
    variants = [{"VariantName": "all", "ModelName": "squares", "InstanceType": "ml.local.small"}]
    create = fresh_server.client("sagemaker").create_endpoint_config
    assert "needs S3OutputPath" in refused(create, **without, ProductionVariants=variants)


def test_notifications_reach_the_operators_url_even_where_it_was_down(tmp_path: Path) -> None:
    """A 503 and a redirect are not taken for delivered; a restart loses none."""
    with subscriber() as told:
        topics = f'{{"{TOPIC}" = "{told.url}"}}'
        with served(tmp_path, PENSTOCK_CONTROL_TOPICS=topics) as server:
            site = AsyncSite(server, tmp_path)
            site.model()
            site.endpoint(
                "later",
                output={
                    "NotificationConfig": {
                        "SuccessTopic": TOPIC,
                        "ErrorTopic": TOPIC,
                        "IncludeInferenceResponseIn": ["SUCCESS_NOTIFICATION_TOPIC"],
                    }
                },
            )
            told.answers = [503, 302]
            assert site.ask("later", {"number": 3}, "three")
            wait_until(lambda: len(told.posts) == 3, seconds=60, what="the third try")
            idents = {headers["x-amz-sns-message-id"] for headers, _ in told.posts}
            assert len(idents) == 1
            headers, posted = told.posts[-1]
            assert headers["x-amz-sns-message-type"] == "Notification"
            assert (posted["Type"], posted["TopicArn"]) == ("Notification", TOPIC)
            message = json.loads(posted["Message"])
            assert message["invocationStatus"] == "Completed"
            answer = base64.b64decode(message["responseBody"]["content"])
            assert json.loads(answer)["squared"] == 9

            told.answers = [503] * 2
            assert site.ask("later", {"nmber": 3}, "bad")
            wait_until(lambda: len(told.posts) == 4, seconds=60, what="a failure's notification")
            server.kill()
            with settings({"PENSTOCK_CONTROL_TOPICS": topics}):
                server.start()
            wait_until(lambda: len(told.posts) == 6, seconds=60, what="its third try")
            failed = json.loads(told.posts[-1][1]["Message"])
            assert failed["invocationStatus"] == "Failed"
            assert "KeyError" in failed["failureReason"]


def test_an_endpoint_wakes_for_its_backlog_and_goes_back_to_zero(tmp_path: Path) -> None:
    """With the policies that SageMaker's guide shows: target tracking on the backlog of an
    instance, a step from zero, and a least capacity of zero."""
    with served(tmp_path, **QUICK) as server:
        site = AsyncSite(server, tmp_path)
        site.model()
        site.endpoint("later")
        scaling, resource = server.client("application-autoscaling"), "endpoint/later/variant/all"
        named = {
            "ServiceNamespace": "sagemaker",
            "ResourceId": resource,
            "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        }
        scaling.register_scalable_target(**named, MinCapacity=0, MaxCapacity=2)
        scaling.put_scaling_policy(
            **named,
            PolicyName="backlog",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": 5.0,
                "CustomizedMetricSpecification": {
                    "MetricName": "ApproximateBacklogSizePerInstance",
                    "Namespace": "AWS/SageMaker",
                    "Dimensions": [{"Name": "EndpointName", "Value": "later"}],
                    "Statistic": "Average",
                },
                "ScaleInCooldown": 1,
                "ScaleOutCooldown": 1,
            },
        )
        step = scaling.put_scaling_policy(
            **named,
            PolicyName="from-zero",
            PolicyType="StepScaling",
            StepScalingPolicyConfiguration={
                "AdjustmentType": "ChangeInCapacity",
                "MetricAggregationType": "Average",
                "Cooldown": 300,
                "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
            },
        )
        cloudwatch = server.client("cloudwatch")
        cloudwatch.put_metric_alarm(
            AlarmName="later-has-backlog",
            MetricName="HasBacklogWithoutCapacity",
            Namespace="AWS/SageMaker",
            Statistic="Average",
            EvaluationPeriods=1,
            Period=10,
            Threshold=1,
            ComparisonOperator="GreaterThanOrEqualToThreshold",
            TreatMissingData="missing",
            Dimensions=[{"Name": "EndpointName", "Value": "later"}],
            AlarmActions=[step["PolicyARN"]],
        )

        def at(count: int) -> bool:
            seen = variant(server, "later")
            return (seen["CurrentInstanceCount"], seen["DesiredInstanceCount"]) == (count, count)

        # Nothing is asked: the metric of the backlog is 0, and the only instance goes.
        wait_until(lambda: at(0), seconds=110, what="no instance")
        for number in range(8):
            assert site.ask("later", {"number": number}, str(number))
        wait_until(lambda: len(site.answers()) == 8, seconds=60, what="eight answers")
        assert variant(server, "later")["DesiredInstanceCount"] >= 1
        causes = [one["Cause"] for one in activities(server, resource)]
        assert any("held" in one or "later-has-backlog" in one for one in causes), causes
        assert highest(server, "HasBacklogWithoutCapacity") == 1.0
        assert highest(server, "ApproximateBacklogSize") >= 1.0


def highest(server: Server, name: str) -> float:
    """Of a metric of the endpoint."""
    return max(server.datapoints(name, "Maximum", period=10, EndpointName="later"))


def test_ten_times_more_requests_than_the_memory_holds(tmp_path: Path) -> None:
    """The server's memory is measured while they wait and while they are done: all of them are
    20 MB, the bound for their bodies is 2 MB."""
    bound, count, size = 2_000_000, 160, 125_000
    with served(tmp_path, PENSTOCK_LIMITS_ASYNC_BYTES_MAX=str(bound)) as server:
        site = AsyncSite(server, tmp_path)
        site.model()
        site.endpoint("later", ClientConfig={"MaxConcurrentInvocationsPerInstance": 64})
        # As large as the others are, so that what a first request loads is there.
        body = {"number": 2, "seconds": 0.001, "ignored": "x" * size}
        assert site.ask("later", body, "first")
        wait_until(lambda: "first" in site.answers(), seconds=60, what="the first answer")
        before = memory_bytes(server.pid)
        for number in range(count):
            assert site.ask("later", body, str(number))
        wait_until(lambda: len(site.answers()) == count + 1, seconds=100, what="all answers")
        grown = memory_bytes(server.pid, "VmHWM") - before
        print(f"requests of {count * size / 1e6:.0f} MB, memory grew by {grown / 1e6:.1f} MB")
        assert grown < count * size / 2
