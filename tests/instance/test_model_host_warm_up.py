"""A text model of a host answers its first caller, and meets its other shapes in idle moments."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kit import model_files
from tests.kit.instances import FrameAnswer, instance
from tests.kit.polling import wait_until

HOST = 7

#: Answers when it is told to. In between it says that a second has passed.
WAITS = """
import pathlib, time
def model_fn(model_dir):
    return None
def until(path):
    while not path.exists():
        time.sleep(0.01)
def predict_fn(data, model):
    signs = pathlib.Path(data["signs"])
    until(signs / "begin")
    time.sleep(1.0)
    (signs / "passed").touch()
    until(signs / "end")
    return data
"""


def test_the_first_caller_is_answered_before_other_shapes_and_none_runs_beside_a_request(
    tmp_path: Path,
) -> None:
    prefix, signs = tmp_path / "models", tmp_path / "signs"
    signs.mkdir()
    model_files.classifier(prefix / "text", buckets=(4, 8))
    model_files.code(prefix / "waits", WAITS, rows_max=1)
    with instance(tmp_path / "run", memory_bytes=4 << 30, artifact={"isolation": False}) as running:
        client = running.client()
        client.serve(HOST, f"{prefix.as_uri()}/", multi_model={"keeps_models": True})

        def shapes_left() -> dict[str, int]:
            told = client.control(op="explain", copy=HOST)
            left: dict[str, int] = told["warm_up"]["shapes_left"]
            return left

        def answered() -> object:
            body = b'{"inputs": "good"}'
            asked = {"content_type": "application/json", "target_model": "text"}
            return client.invoke(HOST, body, **asked).json

        waiting = client.send(
            HOST,
            json.dumps({"signs": str(signs)}).encode(),
            content_type="application/json",
            target_model="waits",
        )
        before = answered()
        assert shapes_left() == {"text": 2}  # padded to 4 and to 8 tokens
        (signs / "begin").touch()
        wait_until((signs / "passed").exists, "longer than a host is quiet before it warms up")
        assert shapes_left() == {"text": 2}

        (signs / "end").touch()
        assert FrameAnswer(client.answer(waiting)).json == {"signs": str(signs)}
        wait_until(lambda: shapes_left() == {}, "the shapes are run once nobody is served")
        assert answered() == before
        client.close()
