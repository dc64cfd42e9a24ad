"""An instance process that the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kit.instances import instance
from triton_instance import TritonInstance


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonInstance]:
    with instance(tmp_path_factory.mktemp("instance")) as running:
        yield TritonInstance(running.client())
