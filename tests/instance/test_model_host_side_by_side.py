"""Models whose sizes are known are loaded beside one another by a real instance."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_model_host import ModelHostClient, adding, packed
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, instance
from tests.kit.polling import wait_until

#: Loads at once while nobody is to be waited for; else when another one is being loaded as well.
MEETS = """
import os, pathlib, time
def model_fn(model_dir):
    folder = pathlib.Path(os.environ["MEETING"])
    (folder / "{name}").touch()
    end = time.monotonic() + 20
    while (folder / "wait").exists() and len(list(folder.glob("model-*"))) < 2:
        if time.monotonic() > end:
            raise TimeoutError("nobody else is loaded")
        time.sleep(0.01)
    return "{name}"
def predict_fn(data, model):
    return {{"model": model}}
"""


@pytest.fixture
def meeting(tmp_path: Path) -> Path:
    folder = tmp_path / "meeting"
    folder.mkdir()
    return folder


def test_two_that_were_loaded_before_are_loaded_at_the_same_time(
    tmp_path: Path, meeting: Path
) -> None:
    prefix = tmp_path / "models"
    names = ("model-a", "model-b")
    for name in names:
        folder = model_files.code(tmp_path / name, MEETS.format(name=name), rows_max=1)
        packed(folder, prefix / name)
    walls = {"isolation": False}  # the models meet in a folder
    with instance(tmp_path / "run", memory_bytes=4 << 30, artifact=walls) as running:
        host = ModelHostClient(running, prefix)
        own_process = {"PENSTOCK_SHARED_WORKER": "false", "MEETING": str(meeting)}
        assert host.load(environment=own_process).get("ok")
        for name in names:
            assert host.ask(name).json == {"model": name}
            host.models(unload=name)
        wait_until(lambda: host.status()["models_loaded"] == 0, "both are unloaded")
        shutil.rmtree(meeting)
        meeting.mkdir()
        (meeting / "wait").touch()
        idents = [host.send(name) for name in names]
        answers = [FrameAnswer(host.client.answer(ident)).json for ident in idents]
        assert answers == [{"model": name} for name in names]
        host.client.close()


def test_models_that_share_a_worker_come_and_go_beside_one_another(tmp_path: Path) -> None:
    prefix = tmp_path / "models"
    names = [f"m-{number}" for number in range(6)]
    for number, name in enumerate(names):
        adding(tmp_path, prefix / name, number)
    with instance(tmp_path / "run", memory_bytes=4 << 30) as running:
        host = ModelHostClient(running, prefix)
        assert host.load(cores=4.0, environment={"PENSTOCK_SHARED_WORKER": "true"}).get("ok")
        for _ in range(3):
            idents = [host.send(name, 10) for name in names]
            answers = [FrameAnswer(host.client.answer(ident)).json["sum"] for ident in idents]
            assert answers == [10, 11, 12, 13, 14, 15]
            for name in names:
                assert host.models(unload=name).get("ok")
            wait_until(lambda: host.status()["models_loaded"] == 0, "all are unloaded")
        host.client.close()
