"""A model whose native library ends its instance, and pins: what outlives an instance.

The model divides the smallest 64-bit number by what it is given. By -1 the quotient is one more
than the largest, for which x86 processors raise a fault: ONNX Runtime, and the process that it is
in, dies of SIGFPE. Elsewhere the division has another outcome, and there is no such model.
"""

from __future__ import annotations

import json
import os
import platform
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.kit import model_files
from tests.kit.multi_model import ANSWER, Shop
from tests.kit.polling import wait_until
from tests.kit.servers import Server

pytestmark = pytest.mark.system

needs_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="only x86 processors raise a fault for this division"
)


def divides(folder: Path, number: int = -(2**63)) -> Path:
    """`number` divided by each row."""
    model_files.write_onnx(
        folder / "model.onnx",
        [helper.make_node("Div", ["n", "x"], ["y"])],
        [model_files.value("x", TensorProto.INT64, ["rows", 1])],
        [model_files.value("y", TensorProto.INT64, ["rows", 1])],
        [("n", np.array([[number]], dtype=np.int64))],
    )
    return model_files.tensor_model(folder, runtime="onnxruntime")


@pytest.fixture
def shop(fresh_server: Server, tmp_path: Path) -> Shop:
    made = Shop(fresh_server, tmp_path / "models")
    made.create()
    return made


def ask(shop: Shop, model: str, body: str) -> tuple[int, Any]:
    status, answer = shop.server.post(
        f"/endpoints/{shop.name}/invocations",
        body.encode(),
        {"X-Amzn-SageMaker-Target-Model": model},
    )
    return status, json.loads(answer)


def pid_of(shop: Shop) -> int | None:
    """Of the one instance, once it serves."""
    copies = [one for one in shop.server.copies(shop.name) if one["state"] == "ready"]
    return int(copies[0]["pid"]) if copies else None


def crashes(shop: Shop) -> int:
    story = shop.server.get(f"/admin/endpoints/{shop.name}/activities")["activities"]
    return sum(one["reason"] == "instance-crashed" for one in story)


@needs_x86
def test_a_model_that_ends_its_instance_twice_is_left_alone_and_the_others_answer(
    shop: Shop, tmp_path: Path
) -> None:
    """Without a record of who was at work the instance would crash at every such call for ever."""
    divides(shop.models / "bad")
    assert ask(shop, "bad", "[[2]]") == (200, {"predictions": [[-(2**62)]]})
    assert shop.invoke("a")

    def refused() -> Any:
        _, answer = ask(shop, "bad", "[[-1]]")
        return answer if "is not loaded for now" in json.dumps(answer) else None

    answer = wait_until(refused, "the model is left alone", 90)
    assert "its instance crashed 2 times while it alone was loading or computing" in str(answer)
    assert crashes(shop) == 2
    assert json.loads(shop.invoke("a"))["predictions"] == [ANSWER]
    row = shop.listed()["bad"]
    assert (row["state"], row["error"]["code"]) == ("failed", "target-model-quarantined")
    story = shop.server.get(f"/admin/endpoints/{shop.name}/models/bad")["hosts"][0]["residency"]
    assert "quarantined" in json.dumps(story)

    # A server that is killed and comes back still knows, and the model harms nobody.
    shop.server.kill()
    shop.server.start()
    shop.server.wait_in_service(shop.name)
    wait_until(lambda: pid_of(shop), "the instance is back", 60)
    status, answer = ask(shop, "bad", "[[2]]")
    assert status == 424, answer
    assert json.loads(shop.invoke("a"))["predictions"] == [ANSWER]

    # A corrected artifact is another model: it is looked for when the model is called.
    divides(tmp_path / "corrected", number=12)
    os.replace(tmp_path / "corrected" / "model.onnx", shop.models / "bad" / "model.onnx")

    def corrected() -> bool:
        return ask(shop, "bad", "[[-1]]") == (200, {"predictions": [[-12]]})

    wait_until(corrected, "the corrected model answers", 30)


def test_pins_outlive_the_instance_and_the_server(shop: Shop) -> None:
    for model, action in (("a", "pin"), ("team%2Fb", "pin"), ("team%2Fb", "unpin")):
        path = f"/admin/endpoints/{shop.name}/models/{model}/{action}"
        assert shop.server.post(path, b"")[0] == 200

    def pinned_in_host(model: str) -> bool:
        [host] = shop.server.get(f"/admin/endpoints/{shop.name}/models/{model}")["hosts"]
        return bool(host["residency"]["pinned"])

    def pinned() -> dict[str, bool]:
        return {model: row["pinned"] for model, row in shop.listed().items()}

    assert pinned() == {"a": True, "team/b": False}
    before = pid_of(shop)
    assert before is not None
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: pid_of(shop) not in (None, before), "a new instance", 60)
    assert shop.invoke("a")
    assert shop.invoke("team/b")
    assert pinned() == {"a": True, "team/b": False}
    wait_until(lambda: pinned_in_host("a"), "the new host knows of the pin", 60)
    assert not pinned_in_host("team/b")
    assert crashes(shop) == 0  # killed from outside: no model is to blame

    shop.server.kill()
    shop.server.start()
    shop.server.wait_in_service(shop.name)
    wait_until(lambda: pid_of(shop), "the instance is back", 60)
    assert pinned() == {"a": True, "team/b": False}
    wait_until(lambda: pinned_in_host("a"), "the next host knows of the pin", 60)
