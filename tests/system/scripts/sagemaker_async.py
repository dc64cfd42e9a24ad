"""Run by the client's own environment: the unmodified SageMaker SDK v2's AsyncPredictor.

Arguments: the artifact's URI, the endpoint's name, a bucket. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys

from sagemaker.async_inference import AsyncInferenceConfig, WaiterConfig
from sagemaker.deserializers import JSONDeserializer
from sagemaker.exceptions import AsyncInferenceModelError
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer

SOON = WaiterConfig(delay=1, max_attempts=120)


def main() -> None:
    artifact, name, bucket = sys.argv[1:]
    model = Model(
        image_uri="local://python",
        model_data=artifact,
        role="arn:aws:iam::123456789012:role/any",
        predictor_cls=Predictor,
    )
    predictor = model.deploy(
        1,
        "ml.local.small",
        endpoint_name=name,
        serializer=JSONSerializer(),
        deserializer=JSONDeserializer(),
        async_inference_config=AsyncInferenceConfig(
            output_path=f"s3://{bucket}/answers",
            failure_path=f"s3://{bucket}/failures",
            max_concurrent_invocations_per_instance=2,
        ),
    )
    answer = predictor.predict({"a": 1}, input_path=f"s3://{bucket}/in/1", waiter_config=SOON)
    later = predictor.predict_async({"a": 2}, input_path=f"s3://{bucket}/in/2")
    second = later.get_result(SOON)
    missing = predictor.predict_async(input_path=f"s3://{bucket}/in/none")
    try:
        failure = missing.get_result(SOON)
    except AsyncInferenceModelError as error:
        failure = str(error)
    predictor.delete_endpoint()
    model.delete_model()
    print(json.dumps({"answer": answer, "second": second, "failure": failure}), flush=True)
    # For each result the SDK has left a thread that looks for the object that never comes, an
    # answer or a failure, until its attempts are over: two minutes that nobody needs.
    os._exit(0)


if __name__ == "__main__":
    main()
