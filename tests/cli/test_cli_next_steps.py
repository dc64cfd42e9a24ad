"""What `penstock up` prints to type next: it must work as typed, on a guarded server too."""

from __future__ import annotations

import re

import pytest

from penstock.api.platform import Addresses
from penstock.cli.server import up

TEXT_MODEL = {
    "task": "text-classification",
    "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
}
CODE_MODEL = {"task": "payload", "inputs": []}
TENSOR_MODEL = {
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
        {"name": "n", "datatype": "INT64", "shape": [-1]},
    ]
}
PLAIN = Addresses("http://127.0.0.1:8080", "127.0.0.1:8081")
TLS = Addresses("https://127.0.0.1:8080", "127.0.0.1:8081")


@pytest.mark.parametrize("model", [TEXT_MODEL, TENSOR_MODEL, CODE_MODEL])
@pytest.mark.parametrize("auth", [False, True])
def test_the_scripts_are_python(model: dict[str, object], auth: bool) -> None:
    printed = up.next_steps("shop", model, PLAIN, auth=auth)
    scripts = re.findall(r"<<'PY'\n(.*?)\n  PY", printed, re.DOTALL)
    assert len(scripts) == (2 if model["inputs"] else 1)  # without tensors Triton's has no request
    for script in scripts:
        compile(re.sub(r"^  ", "", script, flags=re.MULTILINE), "snippet", "exec")


def test_without_auth_no_keys_are_asked_for() -> None:
    printed = up.next_steps("shop", TEXT_MODEL, PLAIN, auth=False)
    assert 'aws_access_key_id="none"' in printed
    assert "PENSTOCK_KEY" not in printed
    assert "ssl" not in printed


def test_with_auth_and_tls_each_client_is_given_its_key() -> None:
    printed = up.next_steps("shop", TEXT_MODEL, TLS, auth=True)
    assert '-H "Authorization: Bearer $PENSTOCK_KEY"' in printed
    assert "aws_access_key_id" not in printed  # boto3 reads AWS_ACCESS_KEY_ID
    assert 'InferenceServerClient("127.0.0.1:8080", ssl=True)' in printed
    assert "headers=headers" in printed
