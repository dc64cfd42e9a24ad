"""Adapters in a real instance with a real engine process, asked over its frames."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.instance.generation_client import Generated, StreamClient
from tests.instance.test_generation_serving import ids_of, prompt_ids
from tests.kit.adapter_files import pairs, write_adapter, write_merged
from tests.kit.generation_models import greedy, write_model
from tests.kit.instances import InstanceProcess, instance
from tests.kit.polling import wait_until

from penstock.wire import frames

pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")

BASE = 1
FIRST, SECOND = pairs(1), pairs(2, ("q_proj", "up_proj"), rank=8)
ASKED = {"inputs": "Hello", "parameters": {"max_new_tokens": 16, "details": True}}
LONG = {"inputs": "x", "parameters": {"max_new_tokens": 400, "ignore_eos_token": True}}
STREAM = {"asked": {"stream": True}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def folders(root: Path) -> dict[str, Path]:
    return {
        "base": write_model(root / "base"),
        "first": write_adapter(root / "first", FIRST),
        "second": write_adapter(root / "second", SECOND),
        "first merged": write_merged(root / "first-merged", FIRST),
        "second merged": write_merged(root / "second-merged", SECOND),
    }


@pytest.fixture(scope="module")
def expected(folders: dict[str, Path]) -> dict[str, list[int]]:
    prompt = prompt_ids("Hello")
    names = {"base": "base", "first": "first merged", "second": "second merged"}
    return {name: greedy(folders[which], prompt, 16) for name, which in names.items()}


@pytest.fixture
def running(folders: dict[str, Path], tmp_path: Path) -> Iterator[InstanceProcess]:
    with instance(tmp_path) as made:
        yield made


@pytest.fixture
def client(running: InstanceProcess, folders: dict[str, Path]) -> Iterator[StreamClient]:
    made = StreamClient(running.path)
    made.serve(BASE, folders["base"])
    yield made
    made.close()


def status_of(client: StreamClient, copy: int) -> dict[str, Any]:
    return next(each for each in client.control(op="status")["copies"] if each["copy"] == copy)


def adapter(client: StreamClient, copy: int, folder: Path) -> dict[str, Any]:
    return client.load(copy, folder, base_copy=BASE)


def test_adapters_come_and_go_while_their_base_answers(
    client: StreamClient, folders: dict[str, Path], expected: dict[str, list[int]]
) -> None:
    """A stream that began before goes on to its end with the tokens that it would have had."""
    alone = client.ask(BASE, LONG, **STREAM).chunks[:-1]  # the last one tells of a seed
    stream = client.begin(BASE, LONG, **STREAM)
    client.begun(stream)
    loaded = adapter(client, 11, folders["first"])
    assert loaded.get("ok"), loaded
    assert loaded["description"]["adapter"] == {
        "rank_max": 4, "layers": 14, "base_model": "tiny",
    }  # fmt: skip
    assert ids_of(client.ask(11, ASKED)) == expected["first"]
    assert adapter(client, 12, folders["second"]).get("ok")
    idents = [client.begin(copy, ASKED) for copy in (BASE, 11, 12) * 3]
    got = [ids_of(client.whole(ident)) for ident in idents]
    assert got == [expected["base"], expected["first"], expected["second"]] * 3
    assert client.whole(stream).chunks[:-1] == alone
    assert client.control(op="unload", copy=11, drain_s=5.0)["found"]
    assert client.ask(11, ASKED).reason == "unknown-copy"
    assert ids_of(client.ask(12, ASKED)) == expected["second"]
    assert ids_of(client.ask(BASE, ASKED)) == expected["base"]
    # A third set of adapters, without the one that went; only one process is left in the end.
    assert adapter(client, 13, folders["first"]).get("ok")
    assert ids_of(client.ask(13, ASKED)) == expected["first"]
    wait_until(lambda: len(status_of(client, BASE)["workers"]) == 1, "one process is left", 30.0)


def test_an_adapter_that_does_not_fit_leaves_its_base_as_it_was(
    client: StreamClient, folders: dict[str, Path], expected: dict[str, list[int]], tmp_path: Path
) -> None:
    one = np.ones((2, 40), np.float32), np.ones((48, 2), np.float32)
    other = write_adapter(tmp_path / "other", {"model.layers.0.self_attn.q_proj": one})
    pickled = tmp_path / "pickled"
    shutil.copytree(folders["first"], pickled)
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    pid = status_of(client, BASE)["workers"][0]["pid"]
    for at, (folder, code) in enumerate(
        ((other, "adapter-mismatch"), (pickled, "artifact-untrusted"),
         (folders["base"], "adapter-incomplete"))
    ):  # fmt: skip
        refused = adapter(client, 20 + at, folder)
        assert refused["error"]["code"] == code, refused
        assert refused["error"]["hint"]
        assert client.ask(20 + at, ASKED).reason == "unknown-copy"
    assert status_of(client, BASE)["workers"][0]["pid"] == pid
    assert ids_of(client.ask(BASE, ASKED)) == expected["base"]


def test_one_that_does_not_fit_takes_none_of_those_loaded_with_it_along(
    client: StreamClient, folders: dict[str, Path], expected: dict[str, list[int]], tmp_path: Path
) -> None:
    """Adapters that wait for each other come with one process; each is judged by itself."""
    one = np.ones((2, 40), np.float32), np.ones((48, 2), np.float32)
    other = write_adapter(tmp_path / "other", {"model.layers.0.self_attn.q_proj": one})
    asked = {11: folders["first"], 12: other, 13: folders["second"]}
    told = client.together([
        {"op": "load", "copy": copy, "endpoint": "e", "variant": "v", "base_copy": BASE,
         "source": {"uri": f"file://{folder}"}}
        for copy, folder in asked.items()
    ])  # fmt: skip
    codes = [each.get("error", {}).get("code") for each in told]
    assert codes == [None, "adapter-mismatch", None]
    assert ids_of(client.ask(11, ASKED)) == expected["first"]
    assert ids_of(client.ask(13, ASKED)) == expected["second"]


def test_adapters_come_back_with_an_engine_that_died(
    client: StreamClient, folders: dict[str, Path], expected: dict[str, list[int]]
) -> None:
    """What befalls the base befalls its adapters, and whoever listens is told of each."""
    assert adapter(client, 11, folders["first"]).get("ok")
    wait_until(lambda: len(status_of(client, BASE)["workers"]) == 1, "one process is left", 30.0)
    os.kill(status_of(client, BASE)["workers"][0]["pid"], signal.SIGKILL)
    wait_until(
        lambda: status_of(client, 11)["state"] == "ready"
        and len(status_of(client, BASE)["workers"]) == 1
        and any(each["event"] == "copy-ready" for each in client.events),
        "the engine is back", 60.0,
    )  # fmt: skip
    told = [(each["event"], each["copy"]) for each in client.events]
    assert sorted(told) == [
        ("copy-lost", BASE), ("copy-lost", 11), ("copy-ready", BASE), ("copy-ready", 11),
    ]  # fmt: skip
    assert ids_of(client.ask(11, ASKED)) == expected["first"]
    assert ids_of(client.ask(BASE, ASKED)) == expected["base"]


def test_a_process_that_dies_after_another_took_over_gives_its_requests_back(
    client: StreamClient, folders: dict[str, Path], expected: dict[str, list[int]]
) -> None:
    """Only what has streamed is broken off; the base and its adapters go on."""
    stream = client.begin(BASE, LONG, **STREAM)
    whole = client.begin(BASE, LONG)
    client.begun(stream)
    old = status_of(client, BASE)["workers"][0]["pid"]
    os.kill(old, signal.SIGSTOP)  # it answers nothing, so it can't be done before it is ended
    assert adapter(client, 11, folders["first"]).get("ok")
    with contextlib.suppress(ProcessLookupError):  # ended, for it stood still for too long
        os.kill(old, signal.SIGKILL)
    assert client.whole(stream).error["code"] == "stream-broken"
    assert client.whole(whole).kind == frames.RETURNED
    assert ids_of(client.ask(11, ASKED)) == expected["first"]
    assert ids_of(client.ask(BASE, ASKED)) == expected["base"]


def test_an_adapter_drains_by_itself(client: StreamClient, folders: dict[str, Path]) -> None:
    """Its streams end, and its base's go on; what comes after is given back."""
    assert adapter(client, 11, folders["first"]).get("ok")
    ours, bases = client.begin(11, LONG, **STREAM), client.begin(BASE, LONG, **STREAM)
    client.begun(ours)
    assert client.control(op="unload", copy=11, drain_s=30.0)["found"]
    assert client.whole(ours).kind == frames.END
    assert client.whole(bases).kind == frames.END


def test_an_adapter_is_cut_off_only_when_its_time_is_up(
    client: StreamClient, folders: dict[str, Path]
) -> None:
    assert adapter(client, 11, folders["first"]).get("ok")
    ours, bases = client.begin(11, LONG, **STREAM), client.begin(BASE, LONG, **STREAM)
    client.begun(ours)
    assert client.control(op="unload", copy=11, drain_s=0.0)["found"]
    ended: Generated = client.whole(ours)
    assert ended.kind == frames.END or ended.error["code"] == "stream-broken"
    assert client.whole(bases).kind == frames.END


def test_unloading_a_base_ends_its_adapters(client: StreamClient, folders: dict[str, Path]) -> None:
    assert adapter(client, 11, folders["first"]).get("ok")
    assert client.control(op="unload", copy=BASE, drain_s=5.0)["found"]
    assert client.ask(11, ASKED).reason == "unknown-copy"
    assert client.control(op="status")["copies"] == []


def test_a_base_that_is_no_language_model_takes_none(
    client: StreamClient, folders: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "paced").mkdir()
    (tmp_path / "paced" / "model.yaml").write_text('{"schema": 1, "runtime": "paced"}')
    assert client.load(2, tmp_path / "paced").get("ok")
    refused = client.load(11, folders["first"], base_copy=2)
    assert refused["error"]["code"] == "adapters-unsupported"
    gone = client.load(12, folders["first"], base_copy=77)
    assert gone["error"]["code"] == "unknown-copy"
