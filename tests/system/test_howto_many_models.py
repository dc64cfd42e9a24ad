"""docs/howto/many-models.md runs as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.servers import ROOT, Server

pytestmark = pytest.mark.system

PAGE = ROOT / "docs" / "howto" / "many-models.md"


@pytest.mark.timeout(300)  # a dozen interpreters start, each beside a server
def test_every_command_of_the_page_works(fresh_server: Server, tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 3
    program = 'set -e\npenstock() { "$PYTHON" -m penstock "$@"; }\n' + "".join(blocks)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = os.environ | {"PENSTOCK_URL": fresh_server.url, "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[3" in done.stdout.replace(" ", "")  # the third model answered
    states = {row["name"]: row["state"] for row in _index(fresh_server)}
    assert states["shop:team/second"] == "UNAVAILABLE"


def _index(server: Server) -> list[dict[str, str]]:
    status, body = server.post("/v2/repository/index", b"")
    assert status == 200
    return list(json.loads(body))
