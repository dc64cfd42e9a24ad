"""What tests of offline work share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.kit.object_server import ObjectServer, object_server


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    with object_server() as server:
        yield server
