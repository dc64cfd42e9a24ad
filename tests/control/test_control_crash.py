"""`kill -9` at any moment: what was answered is there afterwards, and the database is whole."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from penstock.control.store.records import ListQuery
from penstock.control.store.store import Store

WRITER = """
import sys
from pathlib import Path
from penstock.control.store.store import Store
from penstock.core.deployment.deployment import DeploymentSpec, ModelSource, VariantSpec

store = Store(Path(sys.argv[1]))
variant = VariantSpec(name="v", model=ModelSource(model_name="m"), instance_type="ml.x.y",
                      instance_count=1)
deployment = DeploymentSpec(endpoint="", generation=0, config_name="c", variants=(variant,))
number = 0
while True:
    name = f"{sys.argv[2]}-{number}"
    number += 1
    store.create_endpoint(name, deployment, arn=name, now=1.0, tags={"made": "by test"})
    store.set_status(name, "InService", now=2.0, active_generation=1)
    store.begin_update(name, deployment, now=3.0)
    print(name, flush=True)
"""


def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    rng = random.Random(7)
    answered: set[str] = set()
    for round_number in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), f"r{round_number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        answered.add(writer.stdout.readline().strip())
        time.sleep(rng.uniform(0.0, 0.2))  # where the kill falls; right wherever it does
        writer.kill()
        answered |= {line.strip() for line in writer.stdout if line.endswith("\n")}
        writer.wait()
        writer.stdout.close()
    store = Store(tmp_path)
    found = {record.name: record for record in store.all_endpoints()}
    store.close()
    assert answered <= set(found)
    for name in answered:
        assert found[name].status == "Updating"
        assert found[name].active is not None
        assert found[name].target is not None
    for record in found.values():  # those that were cut off: at one step or at the next
        assert (record.active is None) == (record.status == "Creating")
        assert (record.target is None) == (record.status == "InService")
    with sqlite3.connect(tmp_path / "penstock.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_list_call_finds_what_another_process_wrote(tmp_path: Path) -> None:
    """The command line may write keys while the server runs: readers see it at once."""
    first, second = Store(tmp_path), Store(tmp_path)
    second.create_model("m", {}, arn="arn", now=1.0)
    assert [item.name for item in first.list_models(ListQuery()).items] == ["m"]
    second.close()
    first.close()
