"""Run by the client's own environment: the unmodified SageMaker SDK v3 and a container image.

Arguments: the image, a bucket with `one.tar.gz`. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from sagemaker.core.helper.session_helper import Session
from sagemaker.core.resources import Endpoint, EndpointConfig, Model
from sagemaker.core.shapes import (
    ContainerDefinition,
    InferenceExecutionConfig,
    ProductionVariant,
)
from sagemaker.serve import ModelBuilder

ROLE = "arn:aws:iam::123456789012:role/any"
TYPE = "ml.local.small"


def served(name: str, **members: Any) -> Endpoint:
    model = Model.create(model_name=name, execution_role_arn=ROLE, **members)
    variant = ProductionVariant(
        variant_name="all", model_name=model.model_name, initial_instance_count=1,
        instance_type=TYPE, initial_variant_weight=1.0,
    )  # fmt: skip
    EndpointConfig.create(endpoint_config_name=name, production_variants=[variant])
    endpoint = Endpoint.create(endpoint_name=name, endpoint_config_name=name)
    endpoint.wait_for_status("InService", poll=1)
    return endpoint


def asked(endpoint: Endpoint, body: str, **members: Any) -> Any:
    answer = endpoint.invoke(body=body, content_type="text/plain", **members)
    return json.loads(answer.body.read())


def one(image: str, bucket: str) -> Any:
    container = ContainerDefinition(
        image=image, model_data_url=f"s3://{bucket}/one.tar.gz", environment={"MINE": "of ours"}
    )
    endpoint = served("core-one", primary_container=container)
    facts = asked(endpoint, "!facts")
    endpoint.delete()
    return {"files": facts["files"], "mine": facts["environment"]["MINE"]}


def named(image: str) -> Any:
    containers = [
        ContainerDefinition(image=image, container_hostname=name, environment={"NAME": name})
        for name in ("first", "second")
    ]
    endpoint = served(
        "core-named",
        containers=containers,
        inference_execution_config=InferenceExecutionConfig(mode="Direct"),
    )
    told = [
        asked(endpoint, "!facts", target_container_hostname=name)["environment"]["NAME"]
        for name in ("second", "first")
    ]
    described = Model.get("core-named")
    endpoint.delete()
    described.delete()
    return {
        "told": told,
        "mode": described.inference_execution_config.mode,
        "hostnames": [each.container_hostname for each in described.containers],
    }


def row(image: str) -> Any:
    containers = [ContainerDefinition(image=image) for _ in range(2)]
    endpoint = served("core-row", containers=containers)
    told = asked(endpoint, "x")
    endpoint.delete()
    return json.loads(told["body"])["body"]


def built(image: str, bucket: str) -> Any:
    builder = ModelBuilder(
        image_uri=image,
        s3_model_data_url=f"s3://{bucket}/one.tar.gz",
        env_vars={"MINE": "of ours"},
        instance_type=TYPE,
        role_arn=ROLE,
        sagemaker_session=Session(default_bucket=bucket),
    )
    model = builder.build(model_name="core-built")
    endpoint = builder.deploy(endpoint_name="core-built", initial_instance_count=1, wait=False)
    endpoint.wait_for_status("InService", poll=1)
    facts = asked(endpoint, "!facts")
    endpoint.delete()
    model.delete()
    return {"files": facts["files"], "mine": facts["environment"]["MINE"]}


def main() -> None:
    image, bucket = sys.argv[1:]
    told = {
        "one": one(image, bucket),
        "named": named(image),
        "row": row(image),
        "built": built(image, bucket),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
