"""The first runs of a process may come on all lanes at once, as they do under traffic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kit.model_files import affine

_CHILD = """
import sys, threading
from pathlib import Path
import numpy as np
from penstock.artifacts.detection.detect import detect
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino.runtime import OpenVinoRuntime
import dataclasses

found = detect(Path(sys.argv[1]))
runtime = OpenVinoRuntime(LoadContext(
    model_dir=found.root, description=dataclasses.replace(found.description, lanes=4),
    endpoint_name="e", variant_name="v", cores=1.0, memory_bytes_max=0))
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(4)

def first(lane):
    inputs = {"x": np.ones((1, 4), np.float32)}
    barrier.wait()
    runtime.run(lane, inputs)

threads = [threading.Thread(target=first, args=(lane,)) for lane in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("done")
"""


def test_first_runs_on_all_lanes_at_once_do_not_lock_each_other_out(tmp_path: Path) -> None:
    """OpenVINO's table of dtypes did, in half of the tries, and held the interpreter meanwhile."""
    folder = affine(tmp_path)
    for _ in range(4):
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(folder)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert child.stdout == "done\n", child.stderr
