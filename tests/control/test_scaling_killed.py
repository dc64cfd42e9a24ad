"""`kill -9` at any moment of scaling: the count is what the last activity says, counted once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from penstock.control.scaling import calls, loading
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, VariantSpec
from penstock.core.scaling.spec import VARIANT

RESOURCE = "endpoint/chat/variant/all"
WRITER = """
import sys
from pathlib import Path
from penstock.control.scaling import writing
from penstock.control.store.store import Store
from penstock.core.scaling.actions import SetCapacity
from penstock.core.scaling.spec import VARIANT

store = Store(Path(sys.argv[1]))
key = ("endpoint/chat/variant/all", VARIANT)
number = 0
while True:
    record = store.describe_endpoint("chat")
    was = record.active.variants[0].instance_count
    asked = SetCapacity(was=was, to=was % 9 + 1, reason="step-scaling", cause="a test")
    number += 1
    writing.set_capacity(
        store, key, asked, None, activity_id=f"{sys.argv[2]}-{number}", now=20.0
    )
    print(asked.to, flush=True)
"""


def prepared(state_dir: Path) -> None:
    store = Store(state_dir)
    variant = VariantSpec(
        name="all",
        model=ModelSource(model_name="m"),
        instance_type="ml.local.small",
        instance_count=1,
    )
    deployment = DeploymentSpec(endpoint="chat", generation=1, config_name="c", variants=(variant,))
    store.create_endpoint("chat", deployment, arn="chat", now=1.0)
    store.set_status("chat", "InService", now=2.0, active_generation=1)
    asked = calls.Registration(
        resource_id=RESOURCE, dimension=VARIANT, capacity_min=1, capacity_max=9
    )
    calls.register(store, asked, arn="arn", role_arn="", activity_id="", now=3.0)
    store.close()


def test_a_count_and_its_activity_survive_kill_9_together(tmp_path: Path) -> None:
    rng = random.Random(11)
    prepared(tmp_path)
    for round_number in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), f"r{round_number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        answered = [int(writer.stdout.readline())]
        time.sleep(rng.uniform(0.0, 0.1))  # where the kill falls; right wherever it does
        writer.kill()
        answered += [int(line) for line in writer.stdout if line.endswith("\n")]
        writer.wait()
        writer.stdout.close()
        store = Store(tmp_path)
        active = store.describe_endpoint("chat").active
        newest, *before = calls.activities(store, limit=10_000)
        (loaded,) = loading.load_targets(store, fast=False, cooldown_s_max=1e9)
        store.close()
        assert active is not None
        count = active.variants[0].instance_count
        assert newest.change is not None
        assert (newest.change.to, newest.status) == (count, "InProgress")
        assert loaded.open_activity == newest.id
        assert {one.status for one in before} <= {"Overridden"}
        assert count in (answered[-1], answered[-1] % 9 + 1)  # the last one may not be told of
        steps = [one.change for one in (newest, *before) if one.change is not None]
        assert all(later.was == earlier.to for later, earlier in pairwise(steps))
