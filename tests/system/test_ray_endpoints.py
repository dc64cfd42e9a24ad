"""What holds of endpoints on one machine holds on a Ray cluster: their own tests, run there.

A choice of them; `python -m tests.system.with_ray` runs all.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.kit.environments import python_of
from tests.kit.ray_nodes import ROOT

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

CHOICE = ("test_zero_copies", "test_updates")


def test_the_tests_of_endpoints_pass_with_instances_on_a_ray_cluster() -> None:
    python_of("ray")  # skips where there is none
    outside = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.system.with_ray", "-p", "no:cacheprovider"),
            *(f"tests/system/{name}.py" for name in CHOICE),
        ],
        cwd=ROOT,
        env=outside,
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
