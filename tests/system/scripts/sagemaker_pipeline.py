"""Run by the client's own environment: PipelineModel of the SageMaker SDK v2, unmodified.

Arguments: a name, the input of a transform job and its output, the artifacts' URIs. Prints one JSON
object.
"""

from __future__ import annotations

import json
import sys

import sagemaker
from sagemaker.deserializers import JSONDeserializer
from sagemaker.model import Model
from sagemaker.pipeline import PipelineModel
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer

ROLE = "arn:aws:iam::123456789012:role/any"


def main() -> None:
    name, source, output, *artifacts = sys.argv[1:]
    session = sagemaker.Session()
    pipeline = PipelineModel(
        [
            Model(
                image_uri="local://python",
                model_data=artifact,
                role=ROLE,
                env={"NUMBER": str(number)},
                sagemaker_session=session,
            )
            for number, artifact in enumerate(artifacts, 1)
        ],
        role=ROLE,
        name=name,
        sagemaker_session=session,
    )
    pipeline.deploy(1, "ml.local.small", endpoint_name=name, wait=False)
    session.wait_for_endpoint(name, poll=1)
    predictor = Predictor(name, session, JSONSerializer(), JSONDeserializer())
    answer = predictor.predict([0])
    predictor.delete_endpoint()
    transformer = pipeline.transformer(1, "ml.local.small", "SingleRecord", output_path=output)
    transformer.transform(
        source,
        content_type="application/json",
        split_type="Line",
        job_name=name,
        wait=True,
        logs=False,
    )
    described = session.sagemaker_client.describe_transform_job(TransformJobName=name)
    print(json.dumps({"answer": answer, "status": described["TransformJobStatus"]}))


if __name__ == "__main__":
    main()
