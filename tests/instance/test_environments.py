"""Models with requirements of their own, in a real instance: each has its own environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.environments import wheel
from tests.kit.instances import InstanceProcess, instance

TELLS = """
import sys
import tiny

def model_fn(model_dir):
    return tiny.VERSION

def predict_fn(data, model):
    return {"version": model, "prefix": sys.prefix, "modules": sorted(sys.modules)}
"""


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    with instance(tmp_path_factory.mktemp("instance")) as process:
        yield process


def model_of(folder: Path, version: str) -> Path:
    """A model that needs a version of a package, which is beside it."""
    model = model_files.code(folder, TELLS)
    wheel(model / "code" / "wheels", "tiny", version, {"tiny.py": f"VERSION = {version!r}\n"})
    (model / "code" / "requirements.txt").write_text(f"tiny=={version}\n")
    return model


def test_two_models_have_two_versions_of_one_package(
    walled: InstanceProcess, tmp_path: Path
) -> None:
    client = walled.client()
    told = []
    for copy, version in ((1, "1.0"), (2, "2.0")):
        client.serve(copy, model_of(tmp_path / version, version))
        told.append(client.invoke(copy, b"[1]", content_type="application/json").json)
    assert [each["version"] for each in told] == ["1.0", "2.0"]
    assert told[0]["prefix"] != told[1]["prefix"]
    # What the server itself is made of is not in a model's environment.
    assert not {"msgspec", "yaml", "openvino"} & set(told[0]["modules"])
