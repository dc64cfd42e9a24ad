"""Run by the client's own environment: an unmodified boto3 creates a job and waits for its end.

Arguments: the server's address, the model, input, output, the job's name. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys

import boto3
import botocore


def main() -> None:
    url, model, source, output, name = sys.argv[1:]
    client = boto3.client(
        "sagemaker",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
    )
    made = client.create_transform_job(
        TransformJobName=name,
        ModelName=model,
        TransformInput={
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": source}},
            "ContentType": "text/csv",
            "SplitType": "Line",
        },
        TransformOutput={"S3OutputPath": output, "Accept": "text/csv", "AssembleWith": "Line"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
        Tags=[{"Key": "team", "Value": "search"}],
    )
    waiter = client.get_waiter("transform_job_completed_or_stopped")
    waiter.wait(TransformJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
    described = client.describe_transform_job(TransformJobName=name)
    pages = client.get_paginator("list_transform_jobs").paginate(
        NameContains=name, PaginationConfig={"PageSize": 1}
    )
    print(
        json.dumps(
            {
                "botocore": botocore.__version__,
                "arn": made["TransformJobArn"],
                "status": described["TransformJobStatus"],
                "began_and_ended_in_order": described["CreationTime"]
                <= described["TransformStartTime"]
                <= described["TransformEndTime"],
                "listed": [
                    (one["TransformJobName"], one["TransformJobStatus"])
                    for page in pages
                    for one in page["TransformJobSummaries"]
                ],
                "tags": client.list_tags(ResourceArn=made["TransformJobArn"])["Tags"],
            }
        )
    )


if __name__ == "__main__":
    main()
