"""Runs system tests against servers whose instances are on a Ray cluster of this machine.

    python -m tests.system.with_ray                                 # the tests of endpoints, all
    python -m tests.system.with_ray tests/system/test_models.py     # these, with pytest's options

What is not among the tests of endpoints: jobs, whose data would have to be in an object store;
what only the fleet of this machine does (spare processes, guests, one machine's memory); and tests
that make servers of their own kind, as those of regions do.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
from tests.kit.ray_nodes import cluster_of

HERE = Path(__file__).parent

ENDPOINTS = (
    "access_system", "adapters", "asynchronous", "bad_input", "clients", "costs", "endpoint_logs",
    "ensembles", "faults", "generation_doors", "history", "inference_components",
    "instance_pools", "model_metrics_system", "models", "multi_model", "native_crash", "overload",
    "packages", "pipeline_doors", "queues_shared", "raw_bytes", "scale_in", "scaling",
    "seq2seq_models", "service_level_setting", "target_models", "uncompiled_models", "updates",
    "zero_copies",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder, cluster_of(Path(folder), "0", "8", "8") as made:
        os.environ["TESTS_FLEET"] = f"ray:{made.address}"
        every = [str(HERE / f"test_{name}.py") for name in ENDPOINTS]
        return int(pytest.main(arguments or every))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
