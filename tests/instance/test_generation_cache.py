"""A cache of keys and values that would outgrow its instance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.instance.generation_client import StreamClient
from tests.kit.generation_models import write_model
from tests.kit.instances import instance

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")

MIB = 2**20
#: A token takes 384 bytes: all sequences at full length 768 MiB
ENGINE = {"sequences_max": 256, "context_tokens_max": 8192, "cache_mb": 800}


def test_it_is_refused_when_it_loads_and_not_ended_when_it_has_grown(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", engine=ENGINE)
    with instance(tmp_path) as running:
        client = StreamClient(running.path)
        loaded = client.load(1, model, memory_bytes_max=760 * MIB)
        assert "cache-too-large" in json.dumps(loaded)
        assert "set engine.cache_mb in model.yaml to" in json.dumps(loaded)
        client.serve(2, model, memory_bytes_max=4096 * MIB)
        client.serve(3, model)  # no limit
        client.close()


def test_one_whose_size_nobody_asked_for_is_what_the_instance_has_left(tmp_path: Path) -> None:
    """It is a fourth of the memory, and of that so much that the model has room as well."""
    model = write_model(tmp_path / "model", engine=ENGINE)
    settings = model / "model.yaml"
    described = json.loads(settings.read_text())
    del described["engine"]["cache_mb"]
    settings.write_text(json.dumps(described))
    with instance(tmp_path) as running:
        client = StreamClient(running.path)
        client.serve(1, model, memory_bytes_max=760 * MIB)
        assert client.load(2, model, memory_bytes_max=4096 * MIB).get("ok")
        assert "cache-too-small" in json.dumps(client.load(3, model, memory_bytes_max=64 * MIB))
        client.close()
