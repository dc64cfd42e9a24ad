"""Run by the client's own environment: the model classes of the unmodified SageMaker SDK v2.

Runs where `v2.py`, `model.tar.gz` and what it needs are; AWS's variables name server and S3.
Prints one JSON object: what `v2.py` prints, then for each class whether its code is an archive of
its own, and what its predictor answers.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
from pathlib import Path

import numpy
import sagemaker
from sagemaker.deserializers import JSONDeserializer
from sagemaker.huggingface import HuggingFaceModel
from sagemaker.pytorch import PyTorchModel
from sagemaker.serializers import JSONSerializer
from sagemaker.sklearn import SKLearnModel

ROWS = [[1, 2], [3, 4]]


def main() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        runpy.run_path("v2.py")
    page = json.loads(shown.getvalue()[shown.getvalue().index("[") :])
    session = sagemaker.Session(default_bucket="tour")
    given = {
        "model_data": session.upload_data("model.tar.gz", key_prefix="weights"),
        "entry_point": "inference.py",
        "source_dir": str(Path(__file__).with_name("sagemaker_code")),
        "role": "arn:aws:iam::123456789012:role/any",
        "sagemaker_session": session,
    }
    models = {
        "pytorch": PyTorchModel(framework_version="2.6", py_version="py312", **given),
        "huggingface": HuggingFaceModel(
            transformers_version="4.49", pytorch_version="2.6", py_version="py312", **given
        ),
        "sklearn": SKLearnModel(framework_version="1.2-1", py_version="py3", **given),
    }
    predictors = {
        name: model.deploy(1, "ml.local.small", endpoint_name=f"tour-{name}", wait=False)
        for name, model in models.items()
    }
    seen: dict[str, object] = {"page": page}
    for name, predictor in predictors.items():
        session.wait_for_endpoint(predictor.endpoint_name, poll=1)
        model = session.sagemaker_client.describe_model(ModelName=models[name].name)
        submitted = model["PrimaryContainer"]["Environment"]["SAGEMAKER_SUBMIT_DIRECTORY"]
        arrays = name != "huggingface"  # what its predictor speaks unless it is told otherwise
        answer = predictor.predict(numpy.array(ROWS) if arrays else ROWS)
        predictor.serializer, predictor.deserializer = JSONSerializer(), JSONDeserializer()
        seen[name] = {
            "code_on_s3": submitted.startswith("s3://"),
            "default": answer.tolist() if arrays else answer,
            "json": predictor.predict(ROWS),
        }
        predictor.delete_endpoint()
        models[name].delete_model()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
