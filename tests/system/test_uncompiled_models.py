"""Weights that nothing here can compile: the endpoint fails, and says what to install."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.kit.servers import Server

from penstock.compile.libraries import missing


def weights(folder: Path) -> Path:
    """A Hugging Face directory, as small as they come."""
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "bert", "architectures": ["BertForSequenceClassification"]})
    )
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(4)
    (folder / "model.safetensors").write_bytes(content)
    return folder


@pytest.mark.skipif(not missing(), reason="the extra `compile` is installed here")
def test_without_the_extra_the_reason_names_what_to_install(server: Server, tmp_path: Path) -> None:
    server.deploy("uncompiled", weights(tmp_path / "weights"), wait=False)
    try:
        reason = server.settled("uncompiled")["FailureReason"]
        assert "must be compiled before they are served" in reason
        assert "[compile]" in reason
        assert "penstock compile" in reason
    finally:
        server.client("sagemaker").delete_endpoint(EndpointName="uncompiled")
