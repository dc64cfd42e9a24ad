"""Memory of models that share a worker: paid once, measured by model, freed, and held to a limit.

Sizes are the operating system's: own bytes, without pages of files.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pool_harness import ask, ask_until_answered, model, pool
from tests.kit.polling import until

from penstock.errors import ModelError
from penstock.runtimes.base import Returned
from penstock.runtimes.workers.memory import own_bytes

MIB = 1 << 20

#: Holds as many MiB in its module and in its model as the file `mib` says, in a cycle.
HOLDS = """
import os
held = []
held.append(held)
def model_fn(model_dir):
    size = int(open(os.path.join(model_dir, "mib")).read()) << 20
    held.append(bytearray(b"x" * (size // 2)))
    return bytearray(b"x" * (size - size // 2))

def predict_fn(data, model):
    if data == "leak":
        held.append(bytearray(b"x" * (8 << 20)))
    return len(model)
"""


def holding(folder: Path, mib: int) -> Path:
    made = model(folder, HOLDS)
    (made / "mib").write_text(str(mib))
    return made


def own(runtime: Any) -> int:
    return sum(own_bytes(pid) for pid in runtime.pids)


def test_a_process_is_paid_once_for_ten_models(tmp_path: Path) -> None:
    """Ten models of 1 MiB in one worker, and in one each: less than a third of the memory."""

    async def scenario(models_max: int) -> int:
        async with pool(tmp_path / str(models_max), models_max=models_max) as some:
            for number in range(10):
                await some.load(holding(tmp_path / f"{models_max}-{number}", 1))
            memory = await some.workers.memory()
            assert [len(each.models) for each in memory] == [models_max] * (10 // models_max)
            return sum(each.own_bytes for each in memory)

    together, apart = asyncio.run(scenario(10)), asyncio.run(scenario(1))
    print(f"10 models: {together / MIB:.1f} MiB in one worker, {apart / MIB:.1f} MiB in ten")
    assert together < apart / 3


async def test_a_load_tells_what_the_worker_grew_by_and_an_unload_frees_it(tmp_path: Path) -> None:
    """References in modules are dropped, and freed memory goes back to the operating system."""
    async with pool(tmp_path) as some:
        stays = await some.load(holding(tmp_path / "stays", 1))
        before = own(stays)
        large = await some.load(holding(tmp_path / "large", 96))
        assert 90 * MIB < large.growth_bytes < 110 * MIB
        assert own(stays) > before + 90 * MIB
        await large.close()
        assert own(stays) < before + 8 * MIB
        again = await some.load(holding(tmp_path / "again", 96))
        assert 90 * MIB < again.growth_bytes < 110 * MIB
        assert await ask(stays) == MIB // 2


async def test_a_load_that_failed_leaves_nothing(tmp_path: Path) -> None:
    source = (
        "held = bytearray(b'x' * (64 << 20))\n"
        "def model_fn(d): raise ValueError('no weights')\ndef predict_fn(data, m): return 0\n"
    )
    async with pool(tmp_path) as some:
        stays = await some.load(holding(tmp_path / "stays", 1))
        before = own(stays)
        with pytest.raises(ModelError, match="no weights"):
            await some.load(model(tmp_path / "bad", source))
        assert own(stays) < before + 8 * MIB


async def test_a_model_that_is_too_large_for_a_worker_fails_to_load_and_its_mate_goes_on(
    tmp_path: Path,
) -> None:
    """Its load is still under way when the worker is ended for it, together with its mate and then
    alone."""
    source = (
        "import time\ndef model_fn(d):\n    held = bytearray(b'x' * (200 << 20))\n"
        "    time.sleep(600)\ndef predict_fn(data, m): return 0\n"
    )
    async with pool(tmp_path, worker_bytes_max=160 * MIB) as some:
        mate = await some.load(holding(tmp_path / "mate", 2))
        with pytest.raises(ModelError) as caught:
            await some.load(model(tmp_path / "large", source))
        assert caught.value.code == "model-outgrew-worker"
        assert await ask_until_answered(mate) == MIB
        assert some.said("mate") == ["lost 0", "ready 0"]
        assert some.said("large") == []


async def test_libraries_are_counted_apart_from_the_model_that_imports_them_first(
    tmp_path: Path,
) -> None:
    source = (
        "def model_fn(d):\n    import sqlalchemy.orm\n    return bytearray(b'x' * (4 << 20))\n"
        "def predict_fn(data, m): return len(m)\n"
    )
    async with pool(tmp_path) as some:
        first = await some.load(model(tmp_path / "first", source))
        second = await some.load(model(tmp_path / "second", source))
        print(first.libraries_bytes, first.growth_bytes, second.growth_bytes)
        assert first.libraries_bytes > 4 * MIB
        assert second.libraries_bytes < MIB
        for each in (first, second):
            assert 3 * MIB < each.growth_bytes < 7 * MIB


async def test_a_model_that_leaks_is_found_by_splitting_and_alone_fails(tmp_path: Path) -> None:
    """Five models share a worker of 160 MiB; the third leaks 8 MiB with each answer."""
    async with pool(tmp_path, worker_bytes_max=160 * MIB) as some:
        runtimes = {each: await some.load(holding(tmp_path / each, 2)) for each in "abcde"}
        failed = lambda: "failed 0" in some.said("c")  # noqa: E731

        async def leak() -> None:
            while not failed():
                if isinstance(await ask(runtimes["c"], "leak"), Returned):
                    await asyncio.sleep(0.05)
                most = max((own_bytes(pid) for pid in some.workers.pids), default=0)
                if most > 170 * MIB:  # it is looked at every half second
                    await asyncio.sleep(0.1)

        await asyncio.wait_for(leak(), 100)
        error = some.heard["c"].errors[-1]
        assert error.code == "model-outgrew-worker"
        assert error.message == (
            "c alone took more than the 160 MiB of memory that a worker of Python models may"
        )
        for name in "abde":
            await until(lambda name=name: some.said(name)[-1:] == ["ready 0"])
            assert "failed 0" not in some.said(name)
            assert await ask(runtimes[name]) == MIB
        names = [each.models for each in await some.workers.memory()]
        assert sorted(name for each in names for name in each) == ["a", "b", "d", "e"]


async def test_models_that_are_too_many_for_one_worker_are_split_and_none_fails(
    tmp_path: Path,
) -> None:
    async with pool(tmp_path, worker_bytes_max=160 * MIB) as some:
        runtimes = {each: await some.load(holding(tmp_path / each, 50)) for each in "abc"}
        await until(lambda: len(some.workers.pids) == 2)
        for name, runtime in runtimes.items():
            assert await ask_until_answered(runtime) == 25 * MIB
            assert "failed 0" not in some.said(name)
