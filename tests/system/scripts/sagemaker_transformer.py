"""Run by the client's own environment: the Transformer of the SageMaker SDK, v2 or v3, unmodified.

Arguments: the model, input, output, the job's name, and where the job is captured. Prints one JSON
object.
"""

from __future__ import annotations

import json
import sys

try:
    from sagemaker.core.inputs import BatchDataCaptureConfig  # v3
    from sagemaker.core.transformer import Transformer
except ImportError:
    from sagemaker.inputs import BatchDataCaptureConfig
    from sagemaker.transformer import Transformer


def main() -> None:
    model, source, output, name, captured = sys.argv[1:]
    transformer = Transformer(
        model,
        1,
        "ml.m5.large",
        strategy="MultiRecord",
        assemble_with="Line",
        accept="text/csv",
        output_path=output,
        env={"PENSTOCK_TRANSFORM_REFUSED_RECORDS": "skip"},
    )
    transformer.transform(
        source,
        content_type="text/csv",
        split_type="Line",
        join_source="Input",
        job_name=name,
        batch_data_capture_config=BatchDataCaptureConfig(captured, generate_inference_id=True),
        wait=True,
        logs=False,
    )
    described = transformer.sagemaker_session.sagemaker_client.describe_transform_job(
        TransformJobName=name
    )
    print(
        json.dumps({"status": described["TransformJobStatus"], "output": transformer.output_path})
    )


if __name__ == "__main__":
    main()
