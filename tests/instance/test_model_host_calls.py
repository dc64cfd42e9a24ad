"""What a host of target models is told to do with them, and what it tells of them: control calls
that wait are answered once it has come about, or with the error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_model_host import ModelHostClient, adding, packed
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, instance
from tests.kit.polling import wait_until

from penstock.wire import frames

GATED = """
import os, time
def wait_for(name):
    while not os.path.exists(os.environ["GATES"] + "/" + name):
        time.sleep(0.01)
def model_fn(model_dir):
    wait_for("load")
    return 1
def predict_fn(data, model):
    if data["x"]:
        wait_for("run")
    return data["x"]
"""


BREAKS = """
def model_fn(model_dir):
    raise ValueError("no!")
def predict_fn(data, model):
    return data
"""


class Gated(ModelHostClient):
    """Its models load, and run, once the gates of these names are open."""

    def open_gate(self, name: str) -> None:
        (self.prefix.parent / "gates" / name).touch()

    def begin(self, **call: Any) -> int:
        """A control call whose answer comes later."""
        self.client.next_id += 1
        body = json.dumps({"op": "models", "copy": 7} | call).encode()
        self.client.socket.sendall(frames.encode(frames.CONTROL, self.client.next_id, body))
        return self.client.next_id

    def told(self, ident: int) -> dict[str, Any]:
        return dict(json.loads(self.client.answer(ident).payload))

    def listed(self, **asked: Any) -> dict[str, dict[str, Any]]:
        rows = self.models(list={"after": "", "limit": 100} | asked)["models"]
        return {row["model"]: row for row in rows}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Gated]:
    prefix, gates = tmp_path / "models", tmp_path / "gates"
    prefix.mkdir()
    gates.mkdir()
    with instance(tmp_path / "run", memory_bytes=4 << 30) as running:
        made = Gated(running, prefix)
        assert made.load(environment={"GATES": str(gates)}).get("ok")
        yield made
        made.open_gate("load")
        made.open_gate("run")
        made.client.close()


def gated(host: Gated, tmp_path: Path, name: str = "slow") -> str:
    folder = model_files.code(tmp_path / name, GATED, rows_max=1)
    packed(folder, host.prefix / f"{name}.tar.gz")
    return f"{name}.tar.gz"


def test_a_load_is_answered_when_the_model_is_loaded_for_all_who_asked(
    host: Gated, tmp_path: Path
) -> None:
    model = gated(host, tmp_path)
    asked = [host.begin(load=model, wait_s=60) for _ in range(2)]
    wait_until(lambda: host.listed().get(model, {}).get("state") == "loading", "it is loading")
    assert not set(asked) & set(host.client.answers)
    host.open_gate("load")
    assert [host.told(ident) for ident in asked] == [{"ok": True, "state": "loaded"}] * 2
    assert host.listed()[model]["state"] == "loaded"
    assert host.models(load=model, wait_s=60) == {"ok": True, "state": "loaded"}


def test_a_load_that_takes_longer_than_one_waits_goes_on(host: Gated, tmp_path: Path) -> None:
    model = gated(host, tmp_path)
    assert host.models(load=model, wait_s=0.1)["error"]["code"] == "target-model-not-ready"
    assert host.models(load=model) == {"ok": True, "state": "asked"}
    host.open_gate("load")
    assert host.models(load=model, wait_s=60)["state"] == "loaded"


def test_a_load_is_answered_with_whatever_refused_it(host: Gated, tmp_path: Path) -> None:
    missing = host.models(load="nobody.tar.gz", wait_s=60)
    assert missing["error"]["code"] == "target-model-not-found"
    assert host.models(load="../a", wait_s=60)["error"]["code"] == "target-model-invalid"
    broken = model_files.code(tmp_path / "broken", BREAKS)
    packed(broken, host.prefix / "broken.tar.gz")
    assert "no!" in host.models(load="broken.tar.gz", wait_s=60)["error"]["message"]
    rows = host.listed()
    assert (list(rows), rows["broken.tar.gz"]["state"]) == (["broken.tar.gz"], "failed")


def test_an_unload_is_answered_when_all_is_answered_and_the_model_is_gone(
    host: Gated, tmp_path: Path
) -> None:
    model = gated(host, tmp_path)
    host.open_gate("load")
    running = host.send(model, 1)
    wait_until(lambda: host.listed()[model]["unanswered"] == 1, "the request runs")
    assert host.models(unload=model, wait_s=0.1)["error"]["code"] == "target-model-busy"
    unloading = host.begin(unload=model, wait_s=60)
    host.open_gate("run")
    assert host.told(unloading) == {"ok": True}
    assert FrameAnswer(host.client.answer(running)).json == 1
    row = host.listed()[model]
    assert (row["state"], row["last_event"]["why"]) == ("unloaded", "dismissed")
    assert host.models(unload=model, wait_s=60) == {"ok": True}  # it is gone already
    assert host.models(unload="nobody", wait_s=60) == {"ok": True}


def test_a_model_that_is_called_again_before_it_is_unloaded_stays_and_that_is_told(
    host: Gated, tmp_path: Path
) -> None:
    model = gated(host, tmp_path)
    host.open_gate("load")
    running = host.send(model, 1)
    wait_until(lambda: host.listed()[model]["unanswered"] == 1, "the request runs")
    unloading = host.begin(unload=model, wait_s=60)

    def is_told() -> bool:
        return host.listed()[model]["last_event"]["what"] == "dismissed"

    wait_until(is_told, "it is to be unloaded")
    again = host.send(model, 2)
    assert "called again" in host.told(unloading)["error"]["message"]
    host.open_gate("run")
    assert [FrameAnswer(host.client.answer(one)).json for one in (running, again)] == [1, 2]
    assert host.listed()[model]["state"] == "loaded"


def test_whoever_waits_is_told_when_the_host_goes(host: Gated, tmp_path: Path) -> None:
    waiting = host.begin(load=gated(host, tmp_path), wait_s=60)
    assert host.client.control(op="unload", copy=7)["found"]
    assert host.told(waiting)["error"]["code"] == "host-gone"


def test_the_list_is_told_page_by_page_in_the_order_of_names(host: Gated, tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        adding(tmp_path, host.prefix / f"{name}.tar.gz", 1)
        host.ask(f"{name}.tar.gz")
    assert list(host.listed(limit=2)) == ["a.tar.gz", "b.tar.gz"]
    assert list(host.listed(after="b.tar.gz")) == ["c.tar.gz"]
    row = host.listed()["a.tar.gz"]
    assert (row["state"], row["misses"], row["waiting"]) == ("loaded", 1, 0)
    assert row["taken"].keys() == {"host_bytes", "accelerator_bytes"}
    assert host.models(pin="a.tar.gz") == {"ok": True}
    assert host.listed()["a.tar.gz"]["pinned"] is True


def test_a_model_is_described_once_it_was_loaded_and_while_its_content_is_that(
    host: Gated, tmp_path: Path
) -> None:
    model_files.affine(host.prefix / "affine")
    unknown = {"ok": True, "loaded": False, "described": None, "requests": 0, "batches": 0}
    assert host.models(describe="affine") == unknown
    host.client.invoke(7, b"[[1, 0, 0, 2]]", content_type="application/json", target_model="affine")
    told = host.models(describe="affine")
    assert (told["loaded"], told["requests"]) == (True, 1)
    assert [one["name"] for one in told["described"]["inputs"]] == ["x"]
    host.models(unload="affine", wait_s=60)
    gone = host.models(describe="affine")
    assert (gone["loaded"], gone["described"]) == (False, told["described"])


def test_a_version_that_the_model_has_not_is_refused_whether_it_is_loaded_or_not(
    host: Gated, tmp_path: Path
) -> None:
    model_files.affine(host.prefix / "affine")

    def asked(version: str) -> FrameAnswer:
        parameters = json.dumps({"version": version})
        return host.client.invoke(
            7, b"[[1, 0, 0, 2]]", content_type="application/json", target_model="affine",
            parameters=parameters,
        )  # fmt: skip

    for _ in range(2):
        assert asked("7").error["code"] == "model-version-not-found"
        assert asked("1").json == {"predictions": [[9.0, 10.5, 12.0]]}
    assert host.status()["unanswered"] == 0


def test_where_there_is_no_room_a_model_is_not_loaded_ahead_of_its_calls(tmp_path: Path) -> None:
    prefix = tmp_path / "models"
    adding(tmp_path, prefix / "a.tar.gz", 1)
    adding(tmp_path, prefix / "b.tar.gz", 1)
    tight = {"PENSTOCK_MODEL_CACHE_SHARE": "0.05"}  # less than the process itself takes
    with instance(tmp_path / "run", memory_bytes=1 << 28) as running:
        host = ModelHostClient(running, prefix)
        assert host.load(environment=tight).get("ok")
        told = host.models(load="a.tar.gz", if_room=True, wait_s=60)
        assert told == {"ok": True, "state": "no-room"}
        assert host.status()["models_loaded"] == 0
        host.client.close()
