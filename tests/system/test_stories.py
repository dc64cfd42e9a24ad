"""A test that waits in vain says what its server was doing, and harms nothing by it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server
from tests.kit.stories import Watch, waited_in_vain

pytestmark = pytest.mark.system

#: Answers once a file is there.
WAITS = """
import os, time
def model_fn(model_dir): return os.environ["FILE"]
def where_it_waits(path):
    print("it is under way", flush=True)
    while not os.path.exists(path): time.sleep(0.02)
def predict_fn(data, path):
    where_it_waits(path)
    return data
"""


def test_a_call_that_waits_is_told_with_where_it_is_and_no_process_ends_of_it(
    empty_server: Server, tmp_path: Path
) -> None:
    server, go_on = empty_server, tmp_path / "go-on"
    python_model(tmp_path / "model", WAITS)
    server.deploy("waits", tmp_path / "model", Environment={"FILE": str(go_on)})
    answers: list[object] = []
    caller = threading.Thread(target=lambda: answers.append(server.invoke("waits", [1])))
    caller.start()
    logs = "/admin/endpoints/waits/logs?lines=100"
    wait_until(lambda: "it is under way" in str(server.get(logs)), "the call in the model", 60)
    watch = Watch(0.2)
    call = watch.begin(server)
    wait_until(lambda: watch.told(call), "the story of a call that waits", 60)
    error = TimeoutError()
    watch.note(error, call)
    watch.end(call)
    go_on.touch()
    caller.join(60)
    assert answers == [[1]]
    [told] = error.__notes__
    for part in ("in where_it_waits", '"unanswered":1', 'penstock_in_flight{endpoint="waits"'):
        assert part in told, told
    # The server's and the instance's own stacks, and the worker's
    assert told.count("Current thread") >= 3, told


@pytest.mark.parametrize(
    ("error", "late"),
    [
        (TimeoutError(), True),
        (AssertionError("it did not come to pass within 30 s"), True),
        (AssertionError("assert 1 == 2"), False),
    ],
)
def test_what_took_too_long_is_told_from_what_is_wrong(error: Exception, late: bool) -> None:
    assert waited_in_vain(error) is late
