"""Which processes `runtimes/container/engine.py` takes for alive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kit.polling import wait_until

from penstock.runtimes.container.engine import started_at


def test_one_that_nobody_has_waited_for_has_ended() -> None:
    """An attendant that was killed is such a one for long where the machine's first process waits
    for its orphans rarely, or never, as in many containers: its container is left behind."""
    assert int(started_at(os.getpid())) > 0
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        stat = Path(f"/proc/{child.pid}/stat")
        wait_until(lambda: ") Z " in stat.read_text(), "its end")
        assert started_at(child.pid) == ""
    assert not stat.exists()
    assert started_at(child.pid) == ""
