"""Triton's rate limiter over the models of one instance, with real processes of Python models.

How many run at once is counted by the models themselves, by files that exist while one runs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.kit import triton_files as files
from tests.kit.instances import FrameClient, instance

from penstock.wire import frames

#: Answers how many ran at once, itself included. Waits until `x` of them do, the first time, and
#: then for a while, in which more could come. `%s`: the folder of those that run. -1 ends it.
COUNTS_RUNNING = """
import pathlib

class TritonPythonModel:
    def initialize(self, args):
        self.folder = pathlib.Path("%s")
        self.mark = self.folder / f"{args['model_name']} {os.getpid()}"
        self.reached = self.folder.parent / "reached"

    def execute(self, requests):
        wanted = given(requests[0], "x").item()
        if wanted < 0:
            os._exit(3)
        self.mark.touch()
        until = time.monotonic() + 20
        while not self.reached.exists() and time.monotonic() < until:
            if self.count() >= wanted:
                self.reached.touch()
            time.sleep(0.005)
        most = 0
        for _ in range(20):
            time.sleep(0.005)
            most = max(most, self.count())
        self.mark.unlink()
        return [answer(most=np.full((1, 1), most, np.int64)) for _ in requests]

    def count(self):
        return len(list(self.folder.iterdir()))
"""


def counting(folder: Path, name: str, count: int, *, lanes: int = 1, more: str = "") -> Path:
    """A model whose lanes need `count` of the resource R."""
    running = folder / "running"
    running.mkdir(exist_ok=True)
    needs = f'rate_limiter {{ resources [ {{ name: "R" count: {count} {more} }} ] priority: 1 }}'
    root = folder / name
    files.python(
        root / name, COUNTS_RUNNING % running,
        inputs=[("x", "INT64", [1])], outputs=[("most", "INT64", [1])], rows_max=1,
        more=f"instance_group {{ count: {lanes} kind: KIND_CPU {needs} }}",
    )  # fmt: skip
    return root


def body(x: int) -> bytes:
    tensor = {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [x]}
    return json.dumps({"inputs": [tensor]}).encode()


def most_at_once(client: FrameClient, copies: int, wanted: int) -> int:
    idents = [
        client.send(copy, body(wanted), door="oip")
        for _ in range(6)
        for copy in range(1, copies + 1)
    ]
    told = [json.loads(frames.decode_reply(one.payload, one.meta_bytes).body)
            for one in map(client.answer, idents)]  # fmt: skip
    return max(one["outputs"][0]["data"][0] for one in told)


@pytest.mark.parametrize(("rate_limit", "most"), [(None, 3), ([], 1), ([["R", 4]], 2)])
def test_models_of_an_instance_share_resources_once_the_operator_says_so(
    tmp_path: Path, rate_limit: list[object] | None, most: int
) -> None:
    roots = [counting(tmp_path, "one", 2, lanes=2), counting(tmp_path, "other", 2)]
    with instance(tmp_path, artifact={"isolation": False, "rate_limit": rate_limit}) as running:
        client = running.client()
        for number, root in enumerate(roots, 1):
            client.serve(number, root)
        assert most_at_once(client, 2, wanted=most) == most


def test_a_model_that_could_never_run_is_refused_by_name(tmp_path: Path) -> None:
    with instance(tmp_path, artifact={"isolation": False, "rate_limit": [["R", 4]]}) as running:
        client = running.client()
        error = client.load(1, counting(tmp_path, "much", 5, more="global: true"))["error"]
        assert error["code"] == "rate-limit-resource", error
        assert "of the resource 'R', and there are 4" in error["message"]
        assert "control.rate_limit_resources" in error["hint"]
        client.serve(1, counting(tmp_path, "less", 4))
        assert most_at_once(client, 1, wanted=1) == 1


def test_a_worker_that_dies_and_a_model_that_leaves_give_resources_back(tmp_path: Path) -> None:
    roots = [counting(tmp_path, "one", 1), counting(tmp_path, "other", 1)]
    with instance(tmp_path, artifact={"isolation": False, "rate_limit": []}) as running:
        client = running.client()
        for number, root in enumerate(roots, 1):
            client.serve(number, root)
        for _ in range(2):
            died = client.send(1, body(-1), door="oip")
            waits = client.send(2, body(1), door="oip")
            assert client.answer(died).kind == frames.RETURNED
            assert client.answer(waits).kind == frames.REPLY
            client.event("copy-ready")
        idents = [client.send(copy, body(1), door="oip") for copy in (1, 1, 2)]
        assert client.control(op="unload", copy=1, drain_s=0.0)["found"]
        kinds = [client.answer(ident).kind for ident in idents]
        assert kinds[2] == frames.REPLY
        assert set(kinds) <= {frames.REPLY, frames.RETURNED}
