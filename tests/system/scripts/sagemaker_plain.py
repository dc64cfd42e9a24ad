"""Run by the client's own environment: the unmodified SageMaker SDK v2, with one address.

Arguments: the artifact's URI, the endpoint's name. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys

from sagemaker.deserializers import JSONDeserializer
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer


def main() -> None:
    artifact, name = sys.argv[1:]
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
    )
    answer = predictor.predict({"a": 1})
    predictor.delete_endpoint()
    model.delete_model()
    print(json.dumps({"answer": answer}))


if __name__ == "__main__":
    main()
