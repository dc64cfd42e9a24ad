"""Reads botocore's test vectors, which `fetch_vectors.py` has put into the cache.

Call `require()` at the top of a module of vector tests: without the cache the module is skipped
with the reason, or fails where CI=true, because there nothing may be left out unseen.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Container
from pathlib import Path
from typing import Any

import botocore.eventstream
import pytest
from botocore.model import ServiceModel
from tests.wire.fetch_vectors import CACHE

from penstock.wire.aws import json_rpc, query, rest_json

#: The protocols, by botocore's names.
PROTOCOLS: dict[str, Any] = {"json": json_rpc, "rest-json": rest_json, "query": query}
PROTOCOL_FILES = ("json", "json_1_0", "json_1_0-query-compatible", "query", "rest-json")
_UNIT = CACHE / "tests" / "unit"


def require() -> None:
    """Skips the calling module when there are no vectors."""
    if not CACHE.is_dir():
        reason = "botocore's test vectors are missing: run `python tests/wire/fetch_vectors.py`"
        pytest.skip(reason, allow_module_level=True)


def protocol_cases(direction: str, without: Container[str] = ()) -> list[Any]:
    """The cases of the protocols served, as pytest parameters (suite's model, case).

    `without`: identifiers of those that no server could pass; the caller says why.
    """
    cases = []
    for name in PROTOCOL_FILES:
        path = _UNIT / "protocols" / direction / f"{name}.json"
        for suite in json.loads(path.read_text("utf-8")):
            for case in suite["cases"]:
                if case["id"] not in without:
                    cases.append(pytest.param(suite, case, id=f"{name}-{case['id']}"))
    return cases


def model_of(suite: dict[str, Any], case: dict[str, Any]) -> ServiceModel:
    """A service with the one operation of the case."""
    given = case["given"]
    description = {key: value for key, value in suite.items() if key != "cases"}
    if description["metadata"]["protocol"] == "query":  # in the bodies, though not in the models
        description["metadata"]["xmlNamespace"] = "https://example.com/"
    return ServiceModel(description | {"operations": {given["name"]: given}})


def signature_cases(without: Container[str] = ()) -> list[Any]:
    """The folders of the SigV4 suite, as pytest parameters (path without extension)."""
    root = _UNIT / "auth" / "aws4_testsuite"
    paths = sorted(path.with_suffix("") for path in root.rglob("*.req"))
    return [
        pytest.param(path, id=str(path.parent.relative_to(root)))
        for path in paths
        if path.name not in without
    ]


def read(path: Path, suffix: str) -> bytes:
    """A file of a signature case, with the line ends of its siblings."""
    return path.with_suffix(suffix).read_bytes().replace(b"\r\n", b"\n")


def eventstream_cases(name: str) -> list[Any]:
    """POSITIVE_CASES or NEGATIVE_CASES: the constants of botocore's own test module.

    Only its assignments are run: the module imports test helpers that aren't installed.
    """
    tree = ast.parse((_UNIT / "test_eventstream.py").read_text("utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.Assign)]
    names = dict(vars(botocore.eventstream))
    exec(compile(tree, "test_eventstream.py", "exec"), names)
    cases: list[Any] = names[name]
    return cases
