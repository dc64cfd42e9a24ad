"""Run by the client's own environment: the unmodified SageMaker SDK v2 and an inference component.

Arguments: the artifact's URI, the endpoint's name. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys

from sagemaker.compute_resource_requirements.resource_requirements import ResourceRequirements
from sagemaker.deserializers import JSONDeserializer
from sagemaker.enums import EndpointType
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
        endpoint_type=EndpointType.INFERENCE_COMPONENT_BASED,
        resources=ResourceRequirements(requests={"num_cpus": 0.25, "memory": 256, "copies": 1}),
        managed_instance_scaling={"MinInstanceCount": 1, "MaxInstanceCount": 2},
        serializer=JSONSerializer(),
        deserializer=JSONDeserializer(),
    )
    session = model.sagemaker_session
    answer = predictor.predict({"a": 1})
    based = session.is_inference_component_based_endpoint(name)
    names = session.list_and_paginate_inference_component_names_associated_with_endpoint(name)
    # Without waiting for one to be gone before the next.
    session.delete_inference_component(model.inference_component_name)
    model.delete_model()
    session.delete_endpoint(name)
    told = {"answer": answer, "based": based, "listed": names == [model.inference_component_name]}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
