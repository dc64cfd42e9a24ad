"""A text model of a host answers its first caller, and meets its other shapes in idle moments."""

from __future__ import annotations

from pathlib import Path

from instance_harness import Answer, instance, wait_until
from tests.fakes import model_files

HOST = 7

WAITS = """
import pathlib, time
def model_fn(model_dir):
    return None
def predict_fn(data, model):
    while not pathlib.Path(data["until"]).exists():
        time.sleep(0.01)
    return data
"""

TAKES_A_SECOND = """
import time
def model_fn(model_dir):
    return None
def predict_fn(data, model):
    time.sleep(1.0)
    return data
"""


def test_the_first_caller_is_answered_before_other_shapes_and_none_runs_beside_a_request(
    tmp_path: Path,
) -> None:
    prefix, end = tmp_path / "models", tmp_path / "end"
    model_files.classifier(prefix / "text", buckets=(4, 8))
    model_files.code(prefix / "waits", WAITS, rows_max=1)
    model_files.code(prefix / "second", TAKES_A_SECOND, rows_max=1)
    with instance(tmp_path / "run", memory_bytes=4 << 30) as running:
        client = running.client()
        loaded = client.load(HOST, f"{prefix.as_uri()}/", multi_model={"keeps_models": True})
        assert loaded.get("ok"), loaded

        def shapes_left() -> dict[str, int]:
            told = client.control(op="explain", copy=HOST)
            left: dict[str, int] = told["warm_up"]["shapes_left"]
            return left

        def answered(model: str, body: str) -> object:
            sent = client.invoke(
                HOST, body.encode(), content_type="application/json", target_model=model
            )
            return sent.json

        waiting = client.send(
            HOST,
            f'{{"until": "{end}"}}'.encode(),
            content_type="application/json",
            target_model="waits",
        )
        before = answered("text", '{"inputs": "good"}')
        # In 1, 2, 4 and 8 rows, of 4 and of 8 tokens.
        assert shapes_left() == {"text": 8}
        answered("second", "{}")  # longer than a host is quiet before it warms up
        assert shapes_left() == {"text": 8}

        end.touch()
        assert Answer(client.answer(waiting)).json == {"until": str(end)}
        wait_until(lambda: shapes_left() == {}, "the shapes are run once nobody is served")
        assert answered("text", '{"inputs": "good"}') == before
        client.close()
