"""Event loops let computing threads go first (`scheduling.py`), and whatever computes is none of
them: looked up for each thread of each process of a server with runtimes of every kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit import seq2seq_models as tiny
from tests.kit.generation_models import write_model
from tests.kit.polling import wait_until
from tests.kit.processes import policies_of
from tests.kit.python_models import python_model
from tests.kit.servers import Server
from tests.kit.transform import transform_site
from tests.system.test_models import foreign_program, sagemaker_code, triton_python

from penstock.runtimes.workers.memory import tree_pids

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the kernel has no such policy"),
]

BATCH = getattr(os, "SCHED_BATCH", None)
#: Modules of processes that pass messages and write down; of an instance, its main thread does.
LOOPS = ("penstock", "penstock.api.composition.gateway")
INSTANCE = "penstock.instance"


def onnx(folder: Path) -> Path:
    return model_files.affine(folder, runtime="onnxruntime")


def seq2seq(folder: Path) -> Path:
    tiny.write_artifact(folder)
    return folder


def generation(folder: Path) -> Path:
    pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")
    return write_model(folder)


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def is_loop(pid: int, task: int) -> bool:
    words = words_of(pid)
    return any(word in LOOPS for word in words) or (INSTANCE in words and task == pid)


def below_the_others(pid: int) -> dict[str, list[str]]:
    """By process, the threads that let others go first, though they are no event loop."""
    found: dict[str, list[str]] = {}
    for one in tree_pids(pid):
        for (task, name), policy in policies_of(one).items():
            if policy == BATCH and not is_loop(one, task):
                found.setdefault(" ".join(words_of(one)), []).append(name)
    return found


@pytest.mark.parametrize(
    ("make", "body"),
    [
        (model_files.affine, b"[[1, 0, 0, 2]]"),
        (onnx, b"[[1, 0, 0, 2]]"),
        (model_files.classifier, b'{"inputs": "very good film"}'),
        (seq2seq, b'{"inputs": "w4 w5 w6"}'),
        (sagemaker_code, b"[1, 2]"),
        (triton_python, b"[[1, 0, 0, 2]]"),
        (foreign_program, b'{"as": "it is"}'),
        (generation, b'{"inputs": "Say", "parameters": {"max_new_tokens": 4}}'),
    ],
)
def test_whatever_computes_is_no_event_loop(
    server: Server, tmp_path: Path, make: Callable[[Path], Path], body: bytes
) -> None:
    name = f"computes-{make.__name__.replace('_', '-')}"
    server.deploy(name, make(tmp_path / "model"))
    status, answer = server.post(f"/endpoints/{name}/invocations", body)
    assert status == 200, answer
    assert below_the_others(server.pid) == {}
    server.client("sagemaker").delete_endpoint(EndpointName=name)


def test_the_loops_do_let_others_go_first(server: Server, tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    server.deploy("loops", model_files.affine(tmp_path / "model"))

    def policies() -> list[int]:
        found = [(one, policies_of(one)) for one in tree_pids(server.pid) if is_loop(one, one)]
        return [
            policy for one, tasks in found for (task, _), policy in tasks.items() if task == one
        ]

    # A spare instance may just have begun.
    wait_until(lambda: len(policies()) >= 2 and set(policies()) == {BATCH}, "loops")
    server.client("sagemaker").delete_endpoint(EndpointName="loops")


SAYS = """
    import os

    def model_fn(folder):
        return None

    def transform_fn(model, body, content_type, accept):
        return "".join(f"{os.sched_getscheduler(0)}\\n" for _ in body.splitlines()), accept
"""


def test_a_worker_of_a_transform_job_is_none(tmp_path: Path) -> None:
    with transform_site(tmp_path) as site:
        site.model("says", python_model(tmp_path / "says", SAYS))
        site.put("in/rows.csv", ["1", "2", "3"])
        site.begin("policies", "says", site.uri("in"))
        assert site.ended("policies")["TransformJobStatus"] == "Completed"
        (out,) = site.outputs("policies").values()
        seen = set(out.split())
        assert seen <= {str(os.SCHED_IDLE), str(os.SCHED_OTHER)}, "of a guest, or of one that was"
        assert len(out.split()) == 3
