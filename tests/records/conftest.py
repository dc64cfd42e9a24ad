"""A bucket for the tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.object_server import ObjectServer, object_server

from penstock.artifacts.sources.source import ArtifactSettings


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server of objects, and credentials that it does not look at."""
    for name in os.environ:
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with object_server() as server:
        yield server


@pytest.fixture
def s3(store: ObjectServer) -> ArtifactSettings:
    """Settings that lead to it."""
    return ArtifactSettings(s3_endpoint=store.url)
