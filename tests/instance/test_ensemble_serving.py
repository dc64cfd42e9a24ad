"""Triton ensembles in a real instance: tensors in, each step by its own runtime, tensors out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fakes import triton_files as files
from tests.fakes.model_files import weights
from tests.instance.instance_harness import Answer, FrameClient, Instance, instance, wait_until

from penstock.wire import frames


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("ensemble")
    root = files.embeddings(folder / "repository", delay_us=20_000)
    with instance(folder) as running:
        yield running, running.client().load(1, root)


def body(*texts: str, **more: Any) -> bytes:
    data = {"name": "TEXT", "datatype": "BYTES", "shape": [len(texts), 1], "data": list(texts)}
    return json.dumps({"inputs": [data], **more}).encode()


def tensors(answer: Answer) -> dict[str, np.ndarray]:
    return {
        each["name"]: np.array(each["data"]).reshape(each["shape"])
        for each in answer.json["outputs"]
    }


def test_an_ensemble_answers_with_what_its_models_make_one_after_the_other(
    served: tuple[Instance, dict[str, Any]],
) -> None:
    running, loaded = served
    assert loaded.get("ok"), loaded
    answer = running.client().invoke(1, body("ab", "cd"), door="oip")
    made = tensors(answer)
    expected = files.letters("ab", "cd") @ weights()
    np.testing.assert_allclose(made["SMALL"], expected, rtol=1e-5)
    np.testing.assert_allclose(made["LARGE"], expected * 10, rtol=1e-5)
