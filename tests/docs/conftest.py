"""What tests of pages share: a page is typed, and what was done of it is on record."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.kit import container_images
from tests.kit.pages import ENGINE, ROOT, head


@pytest.fixture
def type_page(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Types a page to its end, which has to be as it says."""

    def typed(page: str) -> None:
        needs_engine = ENGINE in head(ROOT / page)
        if needs_engine:
            container_images.engine()
        base = container_images.in_place_of_python() if needs_engine else contextlib.nullcontext()
        with base:
            done = subprocess.run(
                [sys.executable, "-m", "tests.kit.page_run", page],
                cwd=ROOT, capture_output=True, text=True, check=False, timeout=580,
            )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        counts = json.loads(done.stdout.strip().rpartition("\n")[2])
        record_property("page", json.dumps({"page": page} | counts))

    return typed
