"""Threads that OpenVINO starts for a graph compute, as those of lanes do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.model_files import affine

#: In a process of its own, whose threads are all known.
_CHILD = """
import os, sys
from pathlib import Path
import numpy as np
from penstock.artifacts.detection.detect import detect
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino.runtime import OpenVinoRuntime

found = detect(Path(sys.argv[1]))
runtime = OpenVinoRuntime(LoadContext(
    model_dir=found.root, description=found.description, cache_dir=Path(sys.argv[2]),
    endpoint_name="e", variant_name="v", cores=1.0, memory_bytes_max=0))
before = set(os.listdir("/proc/self/task"))
for _ in range(32):
    runtime.run(0, {"x": np.eye(4, dtype=np.float32)})
runtime.wait_compiled()
new = set(os.listdir("/proc/self/task")) - before
seen = set()
for task in map(int, new):
    try:
        seen.add((os.sched_getscheduler(task), os.getpriority(os.PRIO_PROCESS, task)))
    except ProcessLookupError:  # it has just ended
        pass
print(seen)
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the kernel has no such policy")
def test_threads_that_a_graph_brings_with_it_compute(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(affine(tmp_path / "m")), str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0)),
    )
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    assert child.stdout == f"{ {(os.SCHED_OTHER, nice)} }\n", child.stderr
