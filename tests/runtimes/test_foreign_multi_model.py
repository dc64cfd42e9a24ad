"""Several models in one foreign server, by the container contract, against one that holds it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.kit.polling import until

from penstock.artifacts.description.description import ModelDescription
from penstock.core.blame.poison_requests import WORKER_DIED, WORKER_DIED_IN_COMPANY
from penstock.errors import ModelError, NotNowError, PenstockError
from penstock.runtimes.base import NOT_BEGUN, LoadContext, Payload, PayloadReply, Returned
from penstock.runtimes.foreign.models_api import ForeignModels
from penstock.runtimes.foreign.multi_model import ForeignHost
from penstock.runtimes.foreign.server import ask_once, server_at
from penstock.runtimes.loader import load_payload_runtime
from penstock.runtimes.workers.memory import tree_pids
from penstock.wire.frames import RequestMeta, encode_request_meta

SERVER = Path(__file__).parents[1] / "kit" / "multi_model_server.py"
PATIENCE_S = 60.0
META = encode_request_meta(RequestMeta(content_type="text/plain", target_model="as-asked"))


class ForeignListener:
    def __init__(self) -> None:
        self.said: list[str] = []

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self.said.append(f"lost {lane}")

    def lane_ready(self, lane: int) -> None:
        self.said.append(f"ready {lane}")

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        self.said.append(f"failed {lane}")


def context(folder: Path, **more: Any) -> LoadContext:
    command = (sys.executable, str(SERVER), "{port}")
    fields: dict[str, Any] = {
        "model_dir": folder,
        "description": ModelDescription(runtime="process", task="payload", command=command),
        "endpoint_name": "e", "variant_name": "v", "cores": 1.0, "memory_bytes_max": 0,
        "startup_timeout_s": PATIENCE_S, "target_model": folder.name,
    }  # fmt: skip
    return LoadContext(**(fields | more))


def weights(folder: Path, text: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "weights").write_text(text or folder.name)
    return folder


async def listed(server: ForeignHost) -> dict[str, str]:
    """The models that the program has: name -> address, page by page."""
    assert server.at is not None
    found: dict[str, str] = {}
    path = "/models"
    while path:
        answer = await ask_once(server.at, "GET", path, timeout_s=PATIENCE_S)
        assert answer is not None
        told = orjson.loads(answer.body)
        found |= {each["modelName"]: each["modelUrl"] for each in told["models"]}
        token = told.get("nextPageToken")
        path = f"/models?next_page_token={token}" if token else ""
    return found


class HeardForeignHost:
    def __init__(self, server: ForeignHost) -> None:
        self.server = server
        self.heard: dict[str, ForeignListener] = {}

    async def load(self, folder: Path, **more: Any) -> Any:
        heard = self.heard[folder.name] = ForeignListener()
        return await load_payload_runtime(context(folder, shared_server=self.server, **more), heard)

    async def listed(self) -> list[str]:
        return sorted(Path(url).name for url in (await listed(self.server)).values())


@asynccontextmanager
async def host(tmp_path: Path, models_max: int = 2, **more: Any) -> AsyncIterator[HeardForeignHost]:
    given = context(tmp_path, environment={"MODELS_MAX": str(models_max)}, target_model="")
    server = await ForeignHost(given, folder=tmp_path / "shown", **more).begin()
    try:
        yield HeardForeignHost(server)
    finally:
        await server.close()
        await server.close()  # closing twice is allowed


def start(runtime: Any, *bodies: str) -> asyncio.Future[list[PayloadReply | Returned]]:
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    runtime.invoke(0, [Payload(META, each.encode()) for each in bodies], answered.set_result)
    assert not answered.done(), "done is called later, never from within invoke"
    return answered


async def ask(runtime: Any, body: str = "hello") -> Any:
    (reply,) = await asyncio.wait_for(start(runtime, body), PATIENCE_S)
    if isinstance(reply, Returned):
        return reply
    return reply.error if reply.error is not None else orjson.loads(reply.body)


async def test_models_are_loaded_asked_by_their_own_names_listed_and_unloaded(
    tmp_path: Path,
) -> None:
    async with host(tmp_path, models_max=3) as some:
        models = {name: await some.load(weights(tmp_path / name)) for name in "abc"}
        for name, model in models.items():
            assert await ask(model) == {
                "weights": name, "target": name, "body": "hello", "multi_model": "true"
            }  # fmt: skip
        known = await listed(some.server)
        assert len(known) == 3  # of two pages
        key = f"a\0{tmp_path / 'a'}"
        place = Path(known[hashlib.sha256(key.encode()).hexdigest()])
        assert place.parts[-2:] == (models["a"].name, "model")
        assert (place / "weights").read_text() == "a"
        assert len({model.pids[0] for model in models.values()}) == 1
        await models["a"].close()
        assert not await some.server.api.has(models["a"].name)
        assert await some.server.api.has(models["b"].name)
        assert await ask(models["a"]) == NOT_BEGUN
        assert (await ask(models["b"]))["weights"] == "b"


async def test_a_server_without_memory_for_one_more_says_not_now_and_takes_it_after_an_unload(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as some:
        a, _ = [await some.load(weights(tmp_path / name)) for name in "ab"]
        third = weights(tmp_path / "c")
        with pytest.raises(NotNowError) as caught:
            await some.load(third)
        assert (caught.value.code, caught.value.retry_after_s) == ("model-memory-full", 1.0)
        await a.close()
        assert (await ask(await some.load(third)))["weights"] == "c"


async def test_no_memory_at_a_request_makes_room_and_sends_it_again(tmp_path: Path) -> None:
    asked: list[str] = []

    async def make_room(target_model: str) -> bool:
        asked.append(target_model)
        await models.pop(0).close()
        return True

    async with host(tmp_path, make_room=make_room) as some:
        models = [await some.load(weights(tmp_path / name)) for name in "ab"]
        assert (await ask(models[1], "!full"))["weights"] == "b"
        assert asked == ["b"]
    async with host(tmp_path, models_max=1) as some:
        full = await ask(await some.load(tmp_path / "a"), "!full")
        assert isinstance(full, NotNowError)
        assert full.code == "model-memory-full"


async def test_a_model_that_can_not_be_loaded_is_told_in_the_servers_words(tmp_path: Path) -> None:
    async with host(tmp_path) as some:
        (tmp_path / "empty").mkdir()
        with pytest.raises(ModelError, match=r"answered 400 .*it has no file weights"):
            await some.load(tmp_path / "empty")
        with pytest.raises(ModelError) as caught:
            await some.load(weights(tmp_path / "slow", "!slow"), startup_timeout_s=0.5)
        assert caught.value.code == "load-timeout"


async def test_loading_twice_and_unloading_twice_are_the_same_as_once(tmp_path: Path) -> None:
    async with host(tmp_path) as some:
        folder = str(weights(tmp_path / "a"))
        api = some.server.api
        for _ in (1, 2):
            await api.load("one", folder, timeout_s=PATIENCE_S)
        assert await listed(some.server) == {"one": folder}
        for _ in (1, 2):
            await api.unload("one")
        assert await listed(some.server) == {}


async def test_a_server_that_knows_one_model_only_is_told_of(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        api = ForeignModels(server_at(server.sockets[0].getsockname()[1]))
        with pytest.raises(ModelError) as caught:
            await api.load("one", "/x", timeout_s=PATIENCE_S)
        assert caught.value.code == "model-unknown"
        assert caught.value.original_status == 404
    with pytest.raises(NotNowError, match="the server ended"):
        await api.unload("one")


async def test_a_server_that_ended_is_started_again_with_its_models(tmp_path: Path) -> None:
    async with host(tmp_path) as some:
        a, b = [await some.load(weights(tmp_path / name)) for name in "ab"]
        assert await ask(a, "!die") == Returned(WORKER_DIED)
        await until(lambda: all(some.heard[name].said == ["lost 0", "ready 0"] for name in "ab"))
        assert [(await ask(each))["weights"] for each in (a, b)] == ["a", "b"]
        guard, program = tree_pids(some.server.pids[0])
        os.kill(guard, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{program}").exists())
        await until(lambda: all(len(some.heard[name].said) == 4 for name in "ab"))
        assert [(await ask(each))["weights"] for each in (a, b)] == ["a", "b"]


@pytest.mark.parametrize("which", [0, 1], ids=["the guard", "the program"])
async def test_a_server_that_was_stopped_is_ended_and_started_again(
    tmp_path: Path, which: int
) -> None:
    async with host(tmp_path) as some:
        a = await some.load(weights(tmp_path / "a"))
        pids = tree_pids(some.server.pids[0])
        os.kill(pids[which], signal.SIGSTOP)
        await until(lambda: some.heard["a"].said == ["lost 0", "ready 0"])
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        assert (await ask(a))["weights"] == "a"


async def test_of_a_server_that_hung_the_guilty_is_known_and_its_mates_are_not_blamed(
    tmp_path: Path,
) -> None:
    async with host(tmp_path) as some:
        short = {"environment": {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "1"}}
        a = await some.load(weights(tmp_path / "a"), **short)
        b = await some.load(weights(tmp_path / "b"))
        both = start(a, "!hang"), start(b, "!hang")
        (hung,), (mate,) = [await asyncio.wait_for(each, PATIENCE_S) for each in both]
        assert isinstance(hung, PayloadReply)
        assert hung.error is not None
        assert hung.error.code == "model-timeout"
        assert mate == NOT_BEGUN
        await until(lambda: all(some.heard[name].said == ["lost 0", "ready 0"] for name in "ab"))
        both = start(a, "!hang"), start(b, "!die")
        (first,), (second,) = [await asyncio.wait_for(each, PATIENCE_S) for each in both]
        assert first == second == Returned(WORKER_DIED_IN_COMPANY)


async def test_a_model_that_the_server_dropped_by_itself_is_loaded_again(tmp_path: Path) -> None:
    """A 404 of the model's own stays its answer, and is computed once."""
    async with host(tmp_path) as some:
        a = await some.load(weights(tmp_path / "a"))
        await ask(a, "!forget")
        assert (await ask(a))["weights"] == "a"
        own = await ask(a, "!not found")
        assert isinstance(own, ModelError)
        assert own.original_status == 404
        assert own.original_message == '{"own": 1}'


async def test_a_replaced_model_is_another_model_for_the_server(tmp_path: Path) -> None:
    async with host(tmp_path) as some:
        old = await some.load(weights(tmp_path / "1" / "m", "old"))
        new = await some.load(weights(tmp_path / "2" / "m", "new"))
        assert [(await ask(each))["weights"] for each in (old, new)] == ["old", "new"]
        await old.close()
        assert (await ask(new))["weights"] == "new"
