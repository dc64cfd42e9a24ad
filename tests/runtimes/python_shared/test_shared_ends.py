"""What becomes of the models of a worker when it dies, hangs, or is killed: the guilty is known."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pool_harness import PATIENCE_S, LanesOfPool, ask, model, pool, start
from tests.kit.polling import until

from penstock.core.blame.poison_requests import WORKER_DIED, WORKER_DIED_IN_COMPANY
from penstock.errors import ModelError, NotNowError
from penstock.runtimes.base import NOT_BEGUN, PayloadReply, Returned
from penstock.runtimes.workers.memory import own_bytes

#: Does what its request says.
OBEYS = """
import os, time
def model_fn(model_dir):
    if os.path.exists(os.path.join(model_dir, "dies-at-load")):
        os._exit(4)
    while os.path.exists(os.path.join(model_dir, "hangs-at-load")):
        time.sleep(0.05)
    return os.path.basename(model_dir)

def predict_fn(data, model):
    if data == "die":
        os._exit(3)
    if data == "hang":
        time.sleep(600)
    if isinstance(data, float):
        time.sleep(data)
    return [data, os.getpid()]
"""


async def loaded(some: LanesOfPool, folder: Path, names: str, **more: Any) -> list[Any]:
    return [await some.load(model(folder / name, OBEYS), **more) for name in names]


async def test_a_killed_worker_loses_no_request_of_anybody(tmp_path: Path) -> None:
    """SIGKILL under load, three times: each request is answered at last, one at most is blamed for
    each death, and all that had not begun are given back without blame."""
    async with pool(tmp_path) as some:
        runtimes = await loaded(some, tmp_path, "abcd")
        blamed: list[str] = []
        answered = 0

        async def client(runtime: Any) -> None:
            nonlocal answered
            for number in range(60):
                while isinstance(told := await ask(runtime, number), Returned):
                    if told != NOT_BEGUN:
                        blamed.append(told.reason)
                    await asyncio.sleep(0.01)  # as a gateway holds it
                assert told[0] == number
                answered += 1

        clients = [asyncio.create_task(client(each)) for each in runtimes]
        for enough in (20, 60, 100):
            await until(lambda enough=enough: answered >= enough and some.workers.pids)
            os.kill(some.workers.pids[0], signal.SIGKILL)
        await asyncio.wait_for(asyncio.gather(*clients), PATIENCE_S)
        assert answered == 240
        assert len(blamed) <= 3
        assert set(blamed) <= {WORKER_DIED}


async def test_who_was_computing_goes_apart_and_its_mates_are_back_without_blame(
    tmp_path: Path,
) -> None:
    async with pool(tmp_path) as some:
        a, b, c = await loaded(some, tmp_path, "abc")
        before = start(a, 0.2), start(b, 1, "die", 2, 3), start(c, 1)
        first, guilty, innocent = [await asyncio.wait_for(each, PATIENCE_S) for each in before]
        assert isinstance(first[0], PayloadReply)
        assert guilty == [Returned(WORKER_DIED_IN_COMPANY), Returned(WORKER_DIED), NOT_BEGUN,
                          NOT_BEGUN]  # fmt: skip
        assert innocent == [NOT_BEGUN]
        await until(lambda: all(some.said(name) == ["lost 0", "ready 0"] for name in "abc"))
        assert a.pids == c.pids != b.pids
        assert [(await ask(each, 5))[0] for each in (a, b, c)] == [5, 5, 5]
        (told,) = some.heard["c"].errors
        assert told.code == "worker-died"
        assert told.message == (
            "e/v: the model's process exited with status 3 while b was computing"
        )


async def test_a_model_that_dies_in_a_row_has_failed_and_the_others_go_on(tmp_path: Path) -> None:
    """Its first death is its mates' as well; the later ones are its own."""
    async with pool(tmp_path, deaths_max=3) as some:
        a, b = await loaded(some, tmp_path, "ab")
        for ready in (1, 2, 3):
            told = await ask(b, "die")
            assert told == Returned(WORKER_DIED)
            await until(lambda ready=ready: some.said("b").count("ready 0") == ready
                        or "failed 0" in some.said("b"))  # fmt: skip
        assert some.said("b") == ["lost 0", "ready 0", "lost 0", "ready 0", "lost 0",
                                  "failed 0"]  # fmt: skip
        assert some.heard["b"].errors[-1].code == "model-quarantined"
        assert "status 3 while b was computing" in some.heard["b"].errors[-1].message
        await until(lambda: some.said("a") == ["lost 0", "ready 0"])
        assert (await ask(a, 1))[0] == 1
        assert await ask(b, 1) == NOT_BEGUN
        await b.close()


async def test_an_answer_in_between_makes_deaths_before_it_not_count(tmp_path: Path) -> None:
    async with pool(tmp_path, deaths_max=2) as some:
        (a,) = await loaded(some, tmp_path, "a")
        for times in (1, 2, 3):
            assert await ask(a, "die") == Returned(WORKER_DIED)
            await until(lambda times=times: some.said("a") == ["lost 0", "ready 0"] * times)
            assert (await ask(a, 1))[0] == 1


async def test_a_model_that_hangs_is_ended_and_known(tmp_path: Path) -> None:
    async with pool(tmp_path) as some:
        (a,) = await loaded(some, tmp_path, "a")
        hangs = {"environment": {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "0.5"}}
        (b,) = await loaded(some, tmp_path, "b", **hangs)
        assert a.pids == b.pids
        both = start(b, "hang"), start(a, 1)
        hung, innocent = [await asyncio.wait_for(each, PATIENCE_S) for each in both]
        assert isinstance(hung[0], PayloadReply)
        assert hung[0].error is not None
        assert hung[0].error.code == "model-timeout"
        assert innocent == [NOT_BEGUN]
        await until(lambda: all(some.said(each) == ["lost 0", "ready 0"] for each in "ab"))
        assert a.pids != b.pids


async def test_time_in_which_others_compute_is_not_a_models_own(tmp_path: Path) -> None:
    async with pool(tmp_path) as some:
        (a,) = await loaded(some, tmp_path, "a")
        short = {"environment": {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "2"}}
        (b,) = await loaded(some, tmp_path, "b", **short)
        both = start(a, 2.5), start(b, 1)
        for each in both:
            (reply,) = await asyncio.wait_for(each, PATIENCE_S)
            assert isinstance(reply, PayloadReply)
            assert reply.error is None
        assert some.said("a") == some.said("b") == []


@pytest.mark.parametrize("way", ["dies", "hangs"])
async def test_a_model_that_ends_its_worker_at_load_is_named_and_its_mates_are_back(
    way: str, tmp_path: Path
) -> None:
    lines: list[str] = []
    async with pool(tmp_path, lines=lines) as some:
        a, b = await loaded(some, tmp_path, "ab")
        bad = model(tmp_path / "bad", OBEYS)
        (bad / f"{way}-at-load").write_text("")
        with pytest.raises(ModelError) as caught:
            await some.load(bad, startup_timeout_s=1.0)
        if way == "dies":
            assert caught.value.code == "worker-died"
            assert caught.value.message.endswith("status 4 while bad was loading")
        else:
            assert caught.value.code == "load-timeout"
            assert caught.value.message.startswith("e/v/bad: ")
        await until(lambda: all(some.said(each) == ["lost 0", "ready 0"] for each in "ab"))
        assert [(await ask(each, 5))[0] for each in (a, b)] == [5, 5]
        assert a.pids == b.pids
        assert some.said("bad") == []
        assert [line for line in lines if "ended-its-worker" in line] == []


async def test_a_load_that_nobody_waits_for_any_more_is_undone_when_it_ends(tmp_path: Path) -> None:
    source = (
        "import os, time\ndef model_fn(d):\n    print('loading')\n"
        "    while os.path.exists(os.path.join(d, 'wait')):\n        time.sleep(0.02)\n"
        "def predict_fn(data, m): return 0\n"
    )
    async with pool(tmp_path) as some:
        (a,) = await loaded(some, tmp_path, "a", isolated=False)
        slow = model(tmp_path / "slow", source)
        (slow / "wait").write_text("")
        load = asyncio.create_task(some.load(slow, isolated=False))
        await until(lambda: "slow" in some.heard and some.heard["slow"].lines == ["loading"])
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load
        mate = start(a, 5)
        (slow / "wait").unlink()
        assert isinstance((await asyncio.wait_for(mate, PATIENCE_S))[0], PayloadReply)
        assert [each.models for each in await some.workers.memory()] == [("a",)]
        assert some.said("a") == some.said("slow") == []


async def test_ends_at_which_nobody_computed_split_the_models_at_the_second(tmp_path: Path) -> None:
    async with pool(tmp_path) as some:
        runtimes = await loaded(some, tmp_path, "abcd")
        for times in (1, 2):
            os.kill(runtimes[0].pids[0], signal.SIGKILL)
            await until(lambda times=times: all(some.said(each) == ["lost 0", "ready 0"] * times
                                                for each in "abcd"))  # fmt: skip
        names = [each.models for each in await some.workers.memory()]
        assert names == [("a", "b"), ("c", "d")]
        assert [(await ask(each, 5))[0] for each in runtimes] == [5, 5, 5, 5]


async def test_lanes_of_one_model_compute_at_once_in_workers_that_others_share(
    tmp_path: Path,
) -> None:
    async with pool(tmp_path, workers_max=2) as some:
        two = await some.load(model(tmp_path / "two", OBEYS, lanes=3))
        assert two.lanes == 2
        one = await some.load(model(tmp_path / "one", OBEYS, lanes=3))
        pids = {(await ask(each, 1, lane=lane))[1] for each in (one, two) for lane in (0, 1)}
        assert len(pids) == 2
        assert sorted(pids) == sorted(two.pids)
        assert await ask(two, "die", lane=1) == Returned(WORKER_DIED)
        await until(lambda: some.said("two") == ["lost 1", "ready 1"])
        await until(lambda: some.said("one")[-1:] == ["ready 1"])
        assert (await ask(two, 7, lane=0))[0] == (await ask(two, 7, lane=1))[0] == 7


async def test_a_closed_pool_leaves_no_process_and_takes_no_model(tmp_path: Path) -> None:
    async with pool(tmp_path) as some:
        a, b = await loaded(some, tmp_path, "ab")
        (pid,) = some.workers.pids
        under_way = start(a, 1)
        await b.close()
        assert isinstance((await under_way)[0], PayloadReply)
        await some.workers.close()
        assert own_bytes(pid) == 0
        assert list((tmp_path / "shown").iterdir()) == []
        assert await ask(a, 1) == NOT_BEGUN
        await a.close()
        with pytest.raises(NotNowError, match="the host of the model is ending"):
            await loaded(some, tmp_path / "more", "c")


async def test_a_pool_that_is_killed_ends_what_runs_and_what_is_started(tmp_path: Path) -> None:
    """As the instance does that is ending itself: nothing is waited for."""
    async with pool(tmp_path) as some:
        a, b = await loaded(some, tmp_path, "ab")
        (pid,) = some.workers.pids
        assert await ask(b, "die") == Returned(WORKER_DIED)
        assert own_bytes(pid) == 0
        some.workers.kill()
        await until(lambda: not any(own_bytes(each) for each in some.workers.pids))
        assert some.said("a") == some.said("b") == ["lost 0"]
        assert await ask(a, 1) == NOT_BEGUN
