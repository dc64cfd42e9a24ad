"""Run by the client's own environment: the unmodified SageMaker SDK v2 and a container image.

Arguments: the image, a bucket with `one.tar.gz` and lists below `lists/`. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import sagemaker
from sagemaker.deserializers import JSONDeserializer
from sagemaker.model import Model
from sagemaker.multidatamodel import MultiDataModel
from sagemaker.pipeline import PipelineModel
from sagemaker.predictor import Predictor
from sagemaker.serializers import IdentitySerializer, JSONSerializer

ROLE = "arn:aws:iam::123456789012:role/any"
TYPE = "ml.local.small"


class Tour:
    def __init__(self, image: str, bucket: str) -> None:
        self.session = sagemaker.Session(default_bucket=bucket)
        self.image = image
        self.bucket = bucket

    def model(self, *, data: Any = None, **environment: str) -> Model:
        return Model(
            image_uri=self.image,
            model_data=data,
            role=ROLE,
            env=environment,
            predictor_cls=Predictor,
            sagemaker_session=self.session,
        )

    def ready(self, name: str) -> Predictor:
        self.session.wait_for_endpoint(name, poll=1)
        return Predictor(name, self.session, IdentitySerializer(), JSONDeserializer())

    def one(self) -> Any:
        """An image, the archive of its weights, and variables."""
        model = self.model(data=f"s3://{self.bucket}/one.tar.gz", MINE="of ours")
        model.deploy(1, TYPE, endpoint_name="image-one", wait=False)
        predictor = self.ready("image-one")
        facts = predictor.predict("!facts", initial_args={"ContentType": "text/plain"})
        predictor.serializer = JSONSerializer()
        listed = predictor.predict([1, 2])
        predictor.delete_endpoint()
        transformer = model.transformer(
            1, TYPE, "SingleRecord", output_path=f"s3://{self.bucket}/out"
        )
        transformer.transform(
            f"s3://{self.bucket}/lists",
            content_type="application/json",
            split_type="Line",
            job_name="image-one",
            wait=True,
            logs=False,
        )
        job = self.session.sagemaker_client.describe_transform_job(TransformJobName="image-one")
        model.delete_model()
        return {
            "files": facts["files"],
            "mine": facts["environment"]["MINE"],
            "listed": listed,
            "job": job["TransformJobStatus"],
        }

    def many(self) -> Any:
        """MultiDataModel: a model is added while the endpoint is in service."""
        prefix = f"s3://{self.bucket}/many/"
        many = MultiDataModel(
            "image-many", prefix, image_uri=self.image, role=ROLE, sagemaker_session=self.session
        )
        many.add_model(f"s3://{self.bucket}/one.tar.gz", "a.tar.gz")
        many.deploy(1, TYPE, wait=False)
        predictor = self.ready("image-many")
        first = predictor.predict("x", target_model="a.tar.gz")
        many.add_model("one.tar.gz", "b.tar.gz")
        second = predictor.predict("x", target_model="b.tar.gz")
        listed = sorted(many.list_models())
        predictor.delete_endpoint()
        many.delete_model()
        return {"weights": [first["weights"], second["weights"]], "listed": listed}

    def row(self) -> Any:
        """PipelineModel, and what AWS's samples do where containers are named."""
        pipeline = PipelineModel(
            [self.model(NAME="a"), self.model(NAME="b")],
            role=ROLE,
            name="image-row",
            sagemaker_session=self.session,
        )
        pipeline.deploy(1, TYPE, endpoint_name="image-row", wait=False)
        predictor = self.ready("image-row")
        answer = predictor.predict("x", initial_args={"ContentType": "text/mine"})
        predictor.delete_endpoint()
        pipeline.delete_model()
        return {"body": json.loads(answer["body"])["body"], "type": answer["headers"]}

    def named(self) -> Any:
        containers = sagemaker.pipeline_container_def([self.model(NAME="a"), self.model(NAME="b")])
        for one, name in zip(containers, ("first", "second"), strict=True):
            one["ContainerHostname"] = name
        self.session.sagemaker_client.create_model(
            ModelName="image-named",
            Containers=containers,
            InferenceExecutionConfig={"Mode": "Direct"},
            ExecutionRoleArn=ROLE,
        )
        self.session.endpoint_from_production_variants(
            "image-named",
            [sagemaker.production_variant("image-named", TYPE, 1)],
            wait=False,
        )
        predictor = self.ready("image-named")
        told = [
            predictor.predict("!facts", {"TargetContainerHostname": name})["environment"]["NAME"]
            for name in ("second", "first")
        ]
        predictor.delete_endpoint()
        return told


def main() -> None:
    tour = Tour(*sys.argv[1:])
    told = {"one": tour.one(), "many": tour.many(), "row": tour.row(), "named": tour.named()}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
