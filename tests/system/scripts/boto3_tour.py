"""An unmodified boto3 of any version: create, wait, call, read metrics, fail, delete.

Run by tests/system/test_clients.py in the client's own environment:
boto3_tour.py URL ARTIFACT_URI NAME. Prints one JSON object of what it saw.
"""

import datetime
import json
import sys
import time

import boto3
import botocore

url, artifact, name = sys.argv[1:4]
keys = {
    "endpoint_url": url,
    "region_name": "us-east-1",
    "aws_access_key_id": "none",
    "aws_secret_access_key": "none",
}
sagemaker = boto3.client("sagemaker", **keys)
runtime = boto3.client("sagemaker-runtime", **keys)
cloudwatch = boto3.client("cloudwatch", **keys)
seen = {"botocore": botocore.__version__}

seen["model_arn"] = sagemaker.create_model(
    ModelName=name, PrimaryContainer={"ModelDataUrl": artifact}
)["ModelArn"]
sagemaker.create_endpoint_config(
    EndpointConfigName=name,
    ProductionVariants=[
        {
            "VariantName": "all",
            "ModelName": name,
            "InstanceType": "ml.c6i.large",
            "InitialInstanceCount": 1,
        }
    ],
    Tags=[{"Key": "team", "Value": "search"}],
)
seen["endpoint_arn"] = sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)[
    "EndpointArn"
]
sagemaker.get_waiter("endpoint_in_service").wait(
    EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
)
described = sagemaker.describe_endpoint(EndpointName=name)
seen["status"] = described["EndpointStatus"]
seen["created_is_recent"] = abs(described["CreationTime"].timestamp() - time.time()) < 600
seen["listed"] = [
    item["EndpointName"] for item in sagemaker.list_endpoints(NameContains=name)["Endpoints"]
]
answer = runtime.invoke_endpoint(
    EndpointName=name,
    ContentType="application/json",
    Body=json.dumps({"inputs": "where is my order"}),
    CustomAttributes="trace=1",
)
seen["answer"] = json.loads(answer["Body"].read())
seen["variant"] = answer["InvokedProductionVariant"]
try:
    runtime.invoke_endpoint(EndpointName="missing-endpoint", Body=b"{}")
except runtime.exceptions.ValidationError as error:
    seen["missing"] = error.response["Error"]["Message"]
try:
    runtime.invoke_endpoint(
        EndpointName=name, ContentType="application/json", Body=b'{"inputs": 5}'
    )
except runtime.exceptions.ModelError as error:
    seen["model_error_status"] = error.response["OriginalStatusCode"]
try:
    sagemaker.create_model(ModelName=name, PrimaryContainer={"ModelDataUrl": artifact})
except sagemaker.exceptions.ClientError as error:
    seen["duplicate"] = error.response["Error"]["Message"]

now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017 - old clients run on old Pythons
cloudwatch.put_metric_data(
    Namespace=f"Shop-{name}", MetricData=[{"MetricName": "Clicks", "Value": 3.0, "Unit": "Count"}]
)
seen["clicks"] = [
    point["Sum"]
    for point in cloudwatch.get_metric_statistics(
        Namespace=f"Shop-{name}",
        MetricName="Clicks",
        StartTime=now - datetime.timedelta(minutes=5),
        EndTime=now + datetime.timedelta(minutes=5),
        Period=60,
        Statistics=["Sum"],
    )["Datapoints"]
]
dimensions = [
    {"Name": "EndpointName", "Value": name},
    {"Name": "VariantName", "Value": "all"},
]
deadline = time.monotonic() + 40
invocations = 0.0
while invocations < 1 and time.monotonic() < deadline:
    time.sleep(0.5)
    result = cloudwatch.get_metric_data(
        MetricDataQueries=[
            {
                "Id": "m1",
                "MetricStat": {
                    "Metric": {
                        "Namespace": "AWS/SageMaker",
                        "MetricName": "Invocations",
                        "Dimensions": dimensions,
                    },
                    "Period": 60,
                    "Stat": "Sum",
                },
            }
        ],
        StartTime=now - datetime.timedelta(minutes=5),
        EndTime=now + datetime.timedelta(minutes=5),
    )
    invocations = sum(result["MetricDataResults"][0]["Values"])
seen["invocations"] = invocations
try:
    cloudwatch.get_metric_statistics(
        Namespace=f"Shop-{name}",
        MetricName="Clicks",
        StartTime=now,
        EndTime=now - datetime.timedelta(minutes=5),
        Period=60,
        Statistics=["Sum"],
    )
except cloudwatch.exceptions.ClientError as error:
    seen["metric_error"] = error.response["Error"]["Code"]
sagemaker.delete_endpoint(EndpointName=name)
sagemaker.get_waiter("endpoint_deleted").wait(
    EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
)
sagemaker.delete_endpoint_config(EndpointConfigName=name)
sagemaker.delete_model(ModelName=name)
seen["deleted"] = True
print(json.dumps(seen))
