"""A request that a model takes, made from its description, and commands that send it.

`penstock deploy`, `up` and `describe` print them; they work when they are pasted into a shell. Of a
model whose own code reads bodies nothing is known but its warm-up requests, so without one the
request is left to the user, and a note says so.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

TEXT: Final = "where is my order"
PAIR: Final = "when will my parcel arrive"
JSON: Final = "application/json"
BEARER: Final = "Authorization: Bearer $PENSTOCK_KEY"
#: Longer bodies are written as an expression: a picture has 150,000 numbers.
_BODY_CHARS_MAX: Final = 400
#: A dimension that is free besides the batch, such as the tokens of a text.
_FREE_SIZE: Final = 8
_TENSORS: Final = ("tensor", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """A body, as text and as a Python expression for it."""

    content_type: str
    body: str
    expression: str  #: of the value of a JSON body; of the text itself for another type
    note: str = ""  #: what the user has to know or do; "" = nothing

    @property
    def short(self) -> bool:
        return len(self.body) <= _BODY_CHARS_MAX


def sample_of(model: Mapping[str, Any]) -> SampleRequest:
    """`model`: as its instance described it; {} where nothing is known of it."""
    given = model.get("sample")
    if given:
        kind = str(given.get("content_type") or JSON)
        body = str(given["body"])
        return SampleRequest(content_type=kind, body=body, expression=repr(body))
    task = str(model.get("task", ""))
    inputs = list(model.get("inputs") or ())
    texts = [spec["name"] for spec in inputs if spec["datatype"] == "BYTES"]
    if task == "text-generation":
        return _json({"inputs": TEXT, "parameters": {"max_new_tokens": 20}})
    if task not in _TENSORS and "text" in texts:
        pair = "text_pair" in texts
        return _json({"inputs": {"text": TEXT, "text_pair": PAIR} if pair else TEXT})
    if inputs and not model.get("pipeline"):
        return _of_tensors(model, inputs)
    return SampleRequest(
        content_type=JSON,
        body="{}",
        expression="{}",
        note="The model's own code reads the request: replace {} by one that it takes. A request in"
        " model.yaml (warmup) is shown here.",
    )


def _json(value: object) -> SampleRequest:
    return SampleRequest(content_type=JSON, body=json.dumps(value), expression=repr(value))


def _of_tensors(model: Mapping[str, Any], inputs: list[Mapping[str, Any]]) -> SampleRequest:
    batched = int(model.get("rows_max") or 0) > 0
    shapes = [concrete(spec["shape"], batched=batched) for spec in inputs]
    values = [_filled(shape, spec) for shape, spec in zip(shapes, inputs, strict=True)]
    if sum(map(math.prod, shapes)) * 3 > _BODY_CHARS_MAX:
        texts = [_repeated(shape, spec) for shape, spec in zip(shapes, inputs, strict=True)]
    else:
        texts = [repr(value) for value in values]
    if len(inputs) == 1:
        return SampleRequest(
            content_type=JSON,
            body=json.dumps({"inputs": values[0]}),
            expression=f"{{'inputs': {texts[0]}}}",
        )
    names = [str(spec["name"]) for spec in inputs]
    named = ", ".join(f"{name!r}: {text}" for name, text in zip(names, texts, strict=True))
    return SampleRequest(
        content_type=JSON,
        body=json.dumps({"inputs": dict(zip(names, values, strict=True))}),
        expression=f"{{'inputs': {{{named}}}}}",
    )


def concrete(shape: list[int], *, batched: bool) -> list[int]:
    """A shape without free sizes: one row, and some of everything else."""
    sizes = [size if size > 0 else _FREE_SIZE for size in shape]
    return [1, *sizes[1:]] if batched and shape and shape[0] <= 0 else sizes


def _element(spec: Mapping[str, Any]) -> Any:
    kind = str(spec["datatype"])
    if kind == "BYTES":
        return TEXT
    if kind == "BOOL":
        return False
    return 0.0 if "FP" in kind or kind == "BF16" else 0


def _filled(shape: list[int], spec: Mapping[str, Any]) -> Any:
    value = _element(spec)
    for size in reversed(shape):
        value = [value] * size
    return value


def _repeated(shape: list[int], spec: Mapping[str, Any]) -> str:
    """The same as an expression that is short for any shape."""
    text = repr(_element(spec))
    for size in reversed(shape):
        text = f"[{text}]" if size == 1 else f"[{text}] * {size}"
        if size != 1 and size is not shape[0]:
            text = f"({text})"
    return text


def curl_command(
    url: str, name: str, sample: SampleRequest, *, auth: bool, target: str = ""
) -> str:
    """One line for a shell. `auth`: the key is read from PENSTOCK_KEY. `target`: TargetModel."""
    headers = [f"-H {shlex.quote(f'Content-Type: {sample.content_type}')}"]
    if target:
        headers.append(f"-H {shlex.quote(f'X-Amzn-SageMaker-Target-Model: {target}')}")
    if auth:
        headers.append(f'-H "{BEARER}"')
    call = f"curl {url}/endpoints/{name}/invocations {' '.join(headers)}"
    if sample.short:
        return f"{call} -d {shlex.quote(sample.body)}"
    program = f"import json; print(json.dumps({sample.expression}))"
    if sample.content_type != JSON or sample.expression.startswith(("'", '"')):
        program = f"print({sample.expression}, end='')"
    return f"python3 -c {shlex.quote(program)} | {call} --data-binary @-"


def boto3_script(
    url: str, name: str, sample: SampleRequest, *, auth: bool, target: str = ""
) -> list[str]:
    """Lines of Python. Without `auth` any credentials do; with it boto3 finds the key's."""
    keys = "" if auth else ', aws_access_key_id="none", aws_secret_access_key="none"'
    plain = sample.content_type != JSON or sample.expression.startswith(("'", '"'))
    body = repr(sample.body) if plain else f"json.dumps({sample.expression})"
    more = f', TargetModel="{target}"' if target else ""
    return [
        "import boto3" if plain else "import boto3, json",
        f'runtime = boto3.client("sagemaker-runtime", endpoint_url="{url}",',
        f'    region_name="us-east-1"{keys})',
        f'answer = runtime.invoke_endpoint(EndpointName="{name}",',
        f'    ContentType="{sample.content_type}", Body={body}{more})',
        'print(answer["Body"].read().decode())',
    ]


def call_text(
    url: str, name: str, model: Mapping[str, Any], *, auth: bool, target: str = ""
) -> str:
    """What to type next, for curl and boto3."""
    sample = sample_of(model)
    script = boto3_script(url, name, sample, auth=auth, target=target)
    lines = [f"  {curl_command(url, name, sample, auth=auth, target=target)}", ""]
    lines += ["  python - <<'PY'", *(f"  {line}" for line in script), "  PY"]
    if sample.note:
        lines += ["", f"  {sample.note}"]
    return "\n".join(lines)
