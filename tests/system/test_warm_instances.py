"""Spare instance processes with real models: taken by what is started next, and replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import model_files
from tests.kit.polling import wait_until
from tests.kit.processes import alive
from tests.kit.servers import Server, up

pytestmark = pytest.mark.system


@pytest.fixture
def warm_server(tmp_path: Path) -> Iterator[Server]:
    config = tmp_path / "penstock.toml"
    config.write_text("[control]\nwarm_instances = 1\n")
    with up(tmp_path, "--config", str(config)) as server:
        yield server


def standing_ready(server: Server, besides: int = 0) -> int:
    """The pid of the spare, once one other than `besides` stands ready."""

    def there() -> Any:
        spares = server.get("/admin/spares")["spares"]
        return [one["pid"] for one in spares if one["ready"] and one["pid"] != besides]

    (pid,) = wait_until(there, "a spare", 60)
    return int(pid)


def test_what_is_started_takes_the_spare_and_another_one_takes_its_place(
    warm_server: Server, tmp_path: Path
) -> None:
    server = warm_server
    first = standing_ready(server)
    server.deploy("affine", model_files.affine(tmp_path / "affine"))
    assert [copy["pid"] for copy in server.copies("affine")] == [first]
    tensor = (
        b'{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}'
    )
    status, body = server.post("/endpoints/affine/invocations", tensor)
    assert status == 200, body
    seen = server.get("/admin/endpoints/affine/ready-times")["components"]["all"]
    assert seen["count"] == 1
    assert seen["forecast_s"] > seen["last"]["start_s"] > 0

    second = standing_ready(server, first)
    os.kill(second, signal.SIGKILL)
    third = standing_ready(server, second)
    assert not alive(second)
    server.set_count("affine", 2)
    assert sorted(copy["pid"] for copy in server.copies("affine")) == sorted([first, third])
    fourth = standing_ready(server, third)
    server.stop()
    assert not any(map(alive, (first, third, fourth)))
