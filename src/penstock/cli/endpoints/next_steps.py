"""What to type next: one call by boto3, curl and tritonclient, made from the model's tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.api.platform import Addresses

TEXT = "where is my order"
PAIR = "when will my parcel arrive"
NUMPY = {"FP32": "float32", "FP64": "float64", "INT64": "int64", "INT32": "int32"}


BEARER = "Authorization: Bearer $PENSTOCK_KEY"


def text(name: str, model: Mapping[str, Any], addresses: Addresses, *, auth: bool) -> str:
    """Snippets for a model whose description (`task`, `inputs`) the instance gave.

    With `auth` they take their keys from the variables that `penstock keys create` prints.
    """
    body = json.dumps(example_body(model))
    scheme, _, host = addresses.http.partition("://")
    curl_headers = "-H 'Content-Type: application/json'" + (f' -H "{BEARER}"' if auth else "")
    boto3_keys = "" if auth else ', aws_access_key_id="none", aws_secret_access_key="none"'
    tls = ", ssl=True" if scheme == "https" else ""
    return f"""
endpoint {name} is in service. Call it:

  curl {addresses.http}/endpoints/{name}/invocations {curl_headers} -d '{body}'

  python - <<'PY'
  import boto3
  runtime = boto3.client("sagemaker-runtime", endpoint_url="{addresses.http}",
      region_name="us-east-1"{boto3_keys})
  answer = runtime.invoke_endpoint(EndpointName="{name}", ContentType="application/json",
      Body='{body}')
  print(answer["Body"].read().decode())
  PY

  python - <<'PY'
  import numpy as np, tritonclient.http as triton
  client = triton.InferenceServerClient("{host}"{tls})
{triton_lines(name, model, auth=auth)}
  PY
"""


def example_body(model: Mapping[str, Any]) -> object:
    """A JSON body that the model understands."""
    texts = [spec["name"] for spec in model.get("inputs") or [] if spec["datatype"] == "BYTES"]
    if "text_pair" in texts:
        return {"inputs": {"text": TEXT, "text_pair": PAIR}}
    if "text" in texts:
        return {"inputs": TEXT}
    inputs = model.get("inputs") or []
    rows = {tensor["name"]: _zeros(tensor["shape"]) for tensor in inputs}
    if len(rows) > 1:
        return {"inputs": rows}
    return {"inputs": next(iter(rows.values()), [[1.0, 2.0, 3.0, 4.0]])}


def triton_lines(name: str, model: Mapping[str, Any], *, auth: bool) -> str:
    """The middle of a tritonclient script."""
    lines = ["  inputs = []"]
    texts = [spec["name"] for spec in model.get("inputs") or [] if spec["datatype"] == "BYTES"]
    if "text" in texts:
        tensors = [
            (
                name,
                "BYTES",
                [1],
                f'np.array(["{PAIR if name == "text_pair" else TEXT}"], dtype=object)',
            )
            for name in texts
        ]
    else:
        tensors = [
            (tensor["name"], tensor["datatype"], _concrete(tensor["shape"]), _numpy(tensor))
            for tensor in model.get("inputs") or []
        ]
    for tensor, datatype, shape, values in tensors:
        lines.append(f'  inputs.append(triton.InferInput("{tensor}", {shape}, "{datatype}"))')
        lines.append(f"  inputs[-1].set_data_from_numpy({values})")
    headers = ""
    if auth:
        lines.append("  import os")
        lines.append("""  headers = {"Authorization": "Bearer " + os.environ["PENSTOCK_KEY"]}""")
        headers = ", headers=headers"
    lines.append(f'  print(client.infer("{name}", inputs{headers}).get_response())')
    return "\n".join(lines)


def _concrete(shape: list[int]) -> list[int]:
    return [size if size > 0 else 1 for size in shape]


def _numpy(tensor: Mapping[str, Any]) -> str:
    kind = NUMPY.get(tensor["datatype"], "float32")
    return f'np.zeros({_concrete(tensor["shape"])}, dtype="{kind}")'


def _zeros(shape: list[int]) -> Any:
    value: Any = 0
    for size in reversed(_concrete(shape)):
        value = [value] * size
    return value
