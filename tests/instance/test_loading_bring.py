"""An artifact that is not here in its time is given up, and whoever brings it is told to stop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from penstock.errors import NotNowError
from penstock.instance.loading.load import LoadCall, brought
from penstock.instance.settings import InstanceSettings


def test_what_takes_too_long_ends_by_itself_and_names_the_source(tmp_path: Path) -> None:
    settings = InstanceSettings(
        instance_id="i", address="unix:/none", cores=1.0, memory_bytes=0, cache_dir=tmp_path
    )
    fields = {"copy": 1, "endpoint": "e", "variant": "v", "source": {"uri": "s3://models/slow"}}
    call = LoadCall.from_dict(fields | {"download_timeout_s": 0.01}, settings)
    cancelled, ended = threading.Event(), threading.Event()

    def bring() -> None:
        cancelled.wait(60)
        ended.set()

    with pytest.raises(NotNowError, match=r"slow was not here within 0\.01 s") as raised:
        asyncio.run(brought(call, bring, cancelled))
    assert raised.value.code == "download-timeout"
    assert cancelled.is_set()
    assert ended.wait(60)
