"""Models with state in a real instance: slots, controls, implicit state, and what is lost."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kit import sequence_models as models
from tests.kit.instances import FrameAnswer, FrameClient, InstanceProcess, instance
from tests.kit.polling import wait_until
from tests.kit.sequence_models import outputs_of, step, total_of

from penstock.wire import frames

#: Copies of one instance for all tests: each test has ids of sequences of its own.
DIRECT, OLDEST, LANES, TEXTS, ONNX, STARTED, OPENVINO = range(1, 8)

_ids = itertools.count(1000)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceProcess]:
    folder = tmp_path_factory.mktemp("sequences")
    oldest = "oldest { max_candidate_sequences: 8 }"
    first = 'initial_state { name: "first" data_type: TYPE_FP32 dims: 1 data_file: "first.bin" }'
    started = models.adding_onnx(folder / "started", initial=first)
    (started / "initial_state").mkdir()
    (started / "initial_state" / "first.bin").write_bytes(np.float32(100).tobytes())
    with instance(folder) as running:
        client = running.client()
        client.serve(DIRECT, models.adding(folder / "direct"))
        client.serve(OLDEST, models.adding(folder / "oldest", batching=oldest))
        client.serve(LANES, models.adding(folder / "lanes", lanes=2, rows_max=2))
        client.serve(TEXTS, models.adding(folder / "texts", corrid="STRING", rows_max=1))
        client.serve(ONNX, models.adding_onnx(folder / "onnx"))
        client.serve(STARTED, started)
        openvino = {"uri": f"file://{models.adding_onnx(folder / 'ov', batching=oldest)}"}
        client.serve(OPENVINO, folder / "ov", source=openvino | {"image": "local://openvino"})
        yield running


@pytest.fixture
def client(served: InstanceProcess) -> Iterator[FrameClient]:
    made = served.client()
    yield made
    made.close()


def send(client: FrameClient, copy: int, *asked: Any, **more: Any) -> int:
    dtype = "FP32" if copy in (ONNX, STARTED, OPENVINO) else "INT64"
    return client.send(copy, step(*asked, dtype=dtype, **more), door="oip")


def ask(client: FrameClient, copy: int, *asked: Any) -> FrameAnswer:
    return FrameAnswer(client.answer(send(client, copy, *asked)))


@pytest.mark.parametrize("copy", [DIRECT, OLDEST, LANES, ONNX, OPENVINO])
def test_each_sequence_adds_up_for_itself(client: FrameClient, copy: int) -> None:
    ids = [next(_ids) for _ in range(3)]
    totals = dict.fromkeys(ids, 0.0)
    for turn in range(5):
        marks = {0: "(", 4: ")"}.get(turn, "")
        asked = {one: send(client, copy, one % 7 + turn, one, marks) for one in ids}
        for one, ident in asked.items():
            totals[one] += one % 7 + turn
            assert total_of(FrameAnswer(client.answer(ident)).json) == totals[one]
    late = ask(client, copy, 1, ids[0])
    assert late.error["code"] == "sequence-not-started"
    assert late.error["original_status"] == 400


def test_requests_that_come_together_run_in_order(client: FrameClient) -> None:
    sequence = next(_ids)
    asked = [
        send(client, DIRECT, x, sequence, marks)
        for x, marks in ((1, "("), (2, ""), (3, ""), (4, ")"))
    ]
    totals = [total_of(FrameAnswer(client.answer(ident)).json) for ident in asked]
    assert totals == [1, 3, 6, 10]


def test_a_direct_batch_has_a_row_for_each_slot_and_says_which_are_none(
    client: FrameClient,
) -> None:
    """Four sequences have the four slots. The last one's request comes with three rows that are
    padding before it."""
    ids = [next(_ids) for _ in range(4)]
    for one in ids:
        ask(client, DIRECT, 1, one, "(")
    seen = {}
    for one in ids:
        rows, row, padding, _ = outputs_of(ask(client, DIRECT, 1, one).json)["seen"][0]
        seen[row] = (rows, padding)
    for one in ids:
        ask(client, DIRECT, 1, one, ")")
    assert seen == {row: (row + 1, (1 << row) - 1) for row in range(4)}


def test_without_a_free_slot_a_sequence_waits_until_one_ends(client: FrameClient) -> None:
    ids = [next(_ids) for _ in range(4)]
    for one in ids:
        ask(client, DIRECT, 1, one, "(")
    waits = next(_ids)
    asked = [send(client, DIRECT, 5, waits, "("), send(client, DIRECT, 6, waits, ")")]
    told = client.control(op="explain", copy=DIRECT)
    assert told["sequences"]["open"] == 4
    assert told["sequences"]["backlog"] == 1
    for one in ids:
        ask(client, DIRECT, 1, one, ")")
    totals = [total_of(FrameAnswer(client.answer(ident)).json) for ident in asked]
    assert totals == [5, 11]


def test_ids_may_be_texts_and_a_number_is_another_sequence(client: FrameClient) -> None:
    assert total_of(ask(client, TEXTS, 3, "a b", "()").json) == 3
    assert ask(client, TEXTS, 3, 5).error["code"] == "sequence-not-started"
    refused = ask(client, DIRECT, 3, "a b", "(")
    assert refused.error["code"] == "sequence-id-invalid"
    assert "takes UINT64" in refused.error["message"]


@pytest.mark.parametrize("sequence", [None, 0, ""])
def test_a_request_without_a_correlation_id_is_refused(client: FrameClient, sequence: Any) -> None:
    refused = ask(client, DIRECT, 1, sequence, "(").error
    assert (refused["code"], refused["original_status"]) == ("sequence-id-missing", 400)
    assert "must specify a non-zero or non-empty correlation ID" in refused["message"]


def test_a_body_of_another_form_has_no_sequence_and_is_refused(client: FrameClient) -> None:
    refused = client.invoke(DIRECT, b"1\n", content_type="text/csv").error
    assert refused["code"] == "sequence-id-missing"


def test_a_model_that_raises_fails_its_batch_once_and_the_sequence_goes_on(
    client: FrameClient,
) -> None:
    """It is not run a second time: it may have counted already."""
    sequence = next(_ids)
    ask(client, DIRECT, 1, sequence, "(")
    failed = ask(client, DIRECT, -13, sequence).error
    assert "13 is bad luck" in failed["message"]
    assert total_of(ask(client, DIRECT, 1, sequence, ")").json) == -11


def test_a_state_begins_with_the_values_of_its_file(client: FrameClient) -> None:
    sequence = next(_ids)
    totals = [total_of(ask(client, STARTED, x, sequence, m).json) for x, m in ((1, "("), (2, ""))]
    assert totals == [101, 103]
    assert total_of(ask(client, STARTED, 1, sequence, "()").json) == 101


def test_a_lanes_sequences_are_lost_with_its_process_and_no_others(client: FrameClient) -> None:
    """Two lanes with two slots each. A sequence begins again on whatever lane has room."""
    ids = [next(_ids) for _ in range(4)]
    lanes = {one: process(ask(client, LANES, 1, one, "(")) for one in ids}
    assert len(set(lanes.values())) == 2
    killed = lanes[ids[0]]
    waits = next(_ids)
    queued = send(client, LANES, 7, waits, "(")
    os.kill(killed, signal.SIGKILL)
    hit = {one for one, pid in lanes.items() if pid == killed}
    for one in ids:
        answer = wait_until(lambda one=one: settled(ask(client, LANES, 2, one)), "an answer", 60)
        if one in hit:
            assert answer.error["code"] == "sequence-lost"
            assert answer.error["original_status"] == 400
        else:
            assert total_of(answer.json) == 3
    assert total_of(FrameAnswer(client.answer(queued)).json) == 7
    for one in hit:
        assert total_of(ask(client, LANES, 4, one, "()").json) == 4
    for one in {*ids, waits} - hit:
        ask(client, LANES, 0, one, ")")


def settled(answer: FrameAnswer) -> FrameAnswer | None:
    return answer if answer.kind != frames.RETURNED else None


def process(answer: FrameAnswer) -> int:
    return int(outputs_of(answer.json)["seen"][0][3])


def test_one_that_ends_its_process_is_given_back_where_it_may_begin_elsewhere(
    client: FrameClient,
) -> None:
    begins = ask(client, TEXTS, -100, "x", "(")
    assert begins.kind == frames.RETURNED
    assert begins.reason == "worker-died"
    client.event("copy-ready")
    goes_on = next(_ids)
    assert total_of(settled_soon(client, TEXTS, 1, str(goes_on), "(").json) == 1
    lost = ask(client, TEXTS, -100, str(goes_on))
    assert lost.error["code"] == "sequence-lost"
    client.event("copy-ready")


def settled_soon(client: FrameClient, *asked: Any) -> FrameAnswer:
    found: FrameAnswer = wait_until(lambda: settled(ask(client, *asked)), "an answer", 60)
    return found


def test_an_idle_sequence_has_ended_and_its_slot_is_free(tmp_path: Path) -> None:
    folder = models.adding(tmp_path / "idle", idle_s=0.3, rows_max=1)
    with instance(tmp_path) as running:
        client = running.client()
        client.serve(1, folder)
        ask(client, 1, 1, 5, "(")
        assert total_of(ask(client, 1, 1, 6, "(").json) == 1  # there is one slot
        assert ask(client, 1, 1, 5).error["code"] == "sequence-not-started"
        told = client.control(op="explain", copy=1)["sequences"]
        assert told["idle"] >= 1


def test_a_warm_up_is_a_sequence_of_its_own(tmp_path: Path) -> None:
    sample = (
        'model_warmup { name: "one" batch_size: 1 inputs { key: "x" value '
        "{ data_type: TYPE_INT64 dims: 1 zero_data: true } } }"
    )
    folder = models.adding(tmp_path / "warm", more=sample, lanes=2)
    with instance(tmp_path) as running:
        client = running.client()
        assert client.load(1, folder).get("ok")
        assert total_of(ask(client, 1, 4, 1, "()").json) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('name: "READY"', 'name: "READYY"'), "input 'READYY' of FP32"),
        (("data_type: TYPE_FP32 dims: 1 ", "data_type: TYPE_INT64 dims: 1 "), "'before' of INT64"),
        (('output_name: "after"', 'output_name: "afterwards"'), "output 'afterwards'"),
    ],
)
def test_a_configuration_that_the_file_contradicts_is_not_loaded(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    folder = models.adding_onnx(tmp_path / "wrong")
    config = folder / "config.pbtxt"
    text = config.read_text()
    assert change[0] in text.partition("state {")[2] or "READY" in change[0]
    before, mark, after = text.partition("sequence_batching")
    config.write_text(before + mark + after.replace(*change))
    with instance(tmp_path) as running:
        told = running.client().load(1, folder)
    assert words in told["error"]["message"], told
