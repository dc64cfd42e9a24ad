"""One container from start to end, without an instance: what it is given, how its start may fail,
and that it ends with whoever started it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit.container_images import (
    ENGINE,
    NO_ENGINE,
    containers,
    containers_of,
    engine,
    engine_says,
    image,
)
from tests.kit.polling import until

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.prepare import prepare
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.core.machine.containers import ContainerWallsSpec
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext, Payload, PayloadReply, PayloadRuntime
from penstock.runtimes.container import engine as engines
from penstock.runtimes.container.command import (
    MODEL,
    RunSpec,
    container_environment,
    parted,
    run_options,
)
from penstock.runtimes.container.settings import ContainerSettings
from penstock.runtimes.loader import load_payload_runtime
from penstock.runtimes.workers.memory import adopted, child_pids
from penstock.wire.frames import RequestMeta, encode_request_meta

MIB = 2**20
SPEC = RunSpec(image="i", name="n", owner="o", copy_name="e/v", shown=Path("/m"))


def pairs(spec: RunSpec) -> set[tuple[str, str]]:
    options = run_options(spec)
    return set(itertools.pairwise(options))


def test_a_container_has_no_right_and_no_port_that_it_does_not_need() -> None:
    found = pairs(SPEC)
    assert {("--cap-drop", "all"), ("--security-opt", "no-new-privileges")} <= found
    assert ("--pull", "never") in found
    assert ("--publish", "127.0.0.1:9:8080") in pairs(replace(SPEC, port=9))
    assert ("--mount", f"type=bind,src=/m,dst={MODEL},ro") in found
    assert run_options(SPEC)[-2:] == ["i", "serve"]
    assert not {name for name, _ in found} & {"--network", "--publish", "--memory", "--cap-add"}


def test_limits_and_isolation_are_asked_for() -> None:
    walls = ContainerWallsSpec(capabilities=("SETUID",))
    found = pairs(replace(SPEC, memory_bytes=100 * MIB, isolated=True, walls=walls))
    assert {("--memory", "104857600"), ("--memory-swap", "104857600")} <= found
    assert {("--network", "none"), ("--cap-add", "SETUID"), ("--shm-size", "52428800")} <= found
    assert "--publish" not in {name for name, _ in found}


def test_one_that_yields_has_the_least_weight_among_all() -> None:
    assert ("--cpu-shares", "2") in pairs(replace(SPEC, yields=True))
    assert "--cpu-shares" not in run_options(SPEC)


def test_it_writes_to_memory_alone() -> None:
    options = run_options(replace(SPEC, memory_bytes=100 * MIB, volumes=("/data", MODEL)))
    assert "--read-only" in options
    places = {value for name, value in itertools.pairwise(options) if name == "--tmpfs"}
    rights = "rw,exec,nosuid,nodev,mode=1777,size=52428800"
    assert places == {f"{each}:{rights}" for each in ("/tmp", "/var/tmp", "/run", "/data")}
    with pytest.raises(ModelError, match="volume '/a:size=9g'"):
        run_options(replace(SPEC, volumes=("/a:size=9g",)))


def test_a_writable_root_may_have_a_size() -> None:
    open_root = replace(SPEC, walls=ContainerWallsSpec(root="writable"))
    assert not {"--read-only", "--tmpfs", "--storage-opt"} & {*run_options(open_root)}
    bounded = ContainerWallsSpec(root="writable", root_bytes=9)
    assert ("--storage-opt", "size=9") in pairs(replace(SPEC, walls=bounded))


def test_caches_of_libraries_are_where_a_container_may_write() -> None:
    cache = "XDG_CACHE_HOME"
    assert container_environment({}, (), offline=False)[cache] == "/tmp/.cache"
    assert cache not in container_environment({}, (cache,), offline=False), "the image says it"
    assert container_environment({cache: "/x"}, (), offline=False)[cache] == "/x"


def test_a_comma_in_a_path_parts_no_options() -> None:
    found = pairs(replace(SPEC, shown=Path('/a,b"c')))
    assert ("--mount", f'type=bind,"src=/a,b""c",dst={MODEL},ro') in found


def test_variables_of_several_lines_go_through_the_clients_environment() -> None:
    assert parted({"A": "x # y", "B": "1\n2"}, {"PATH": "/bin"}) == ("A=x # y\n", {"B": "1\n2"})
    for name in ("PATH", "LD_PRELOAD", "DOCKER_HOST"):
        with pytest.raises(ModelError, match=name):
            parted({name: "1\n2"}, {"PATH": "/bin"})


class Heard:
    """What a listener heard of lane 0."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.ready = 0

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        if lane == 0:
            self.lost.append(error.message)

    def lane_ready(self, lane: int) -> None:
        self.ready += lane == 0

    def lane_failed(self, lane: int, error: PenstockError) -> None: ...


def context(folder: Path, *, by: str = ENGINE, **more: object) -> LoadContext:
    engine()
    settings = ArtifactSettings(containers=ContainerSettings(engine=by, owner="of-tests"))
    found = prepare(ArtifactSource(image=image()), ArtifactCache(folder / "cache"), settings)
    made = LoadContext(
        model_dir=found.root, description=found.description, endpoint_name=folder.name,
        variant_name="v", cores=1.0, memory_bytes_max=0, startup_timeout_s=60.0,
        container_owner="of-tests",
    )  # fmt: skip
    return replace(made, **more)


@contextlib.asynccontextmanager
async def running(asked: LoadContext, heard: Heard) -> AsyncIterator[PayloadRuntime]:
    runtime = await load_payload_runtime(asked, heard)
    try:
        yield runtime
    finally:
        await runtime.close()
        assert containers_of(asked.endpoint_name) == []


async def said(runtime: PayloadRuntime, body: bytes, *, lane: int = 0) -> PayloadReply:
    done: asyncio.Future[list[PayloadReply]] = asyncio.get_running_loop().create_future()
    meta = encode_request_meta(RequestMeta(content_type="application/json"))
    runtime.invoke(lane, [Payload(meta, body)], done.set_result)  # type: ignore[arg-type]
    return (await done)[0]


async def test_one_that_never_answers_is_given_up_in_time(tmp_path: Path) -> None:
    never = context(tmp_path, startup_timeout_s=15.0, environment={"PING": "503"})
    with pytest.raises(ModelError) as caught:
        async with running(never, Heard()):
            pass
    assert caught.value.code == "load-timeout"
    assert "/ping answered 503" in caught.value.message
    assert "the server begins" in caught.value.message, "the log's last lines"
    assert "0.0.0.0:8080" in caught.value.hint
    assert containers_of(tmp_path.name) == []


async def test_the_time_that_the_engine_takes_is_part_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever loads it gives up first, and knows nothing of its path of health."""
    look_into = engines.look_into

    def slowly(*asked: Any) -> Any:
        time.sleep(9.0)
        return look_into(*asked)

    monkeypatch.setattr(engines, "look_into", slowly)
    with pytest.raises(ModelError, match=r"/ping .* was not 200 within 8 s"):
        async with running(context(tmp_path, startup_timeout_s=8.0), Heard()):
            pass


async def test_its_memory_counts_and_its_attendants_death_is_its_own(tmp_path: Path) -> None:
    heard = Heard()
    async with running(context(tmp_path), heard) as runtime:
        attendant, inside = runtime.pids  # type: ignore[attr-defined]
        assert inside in adopted
        assert (await said(runtime, b"x")).error is None
        [name] = containers_of(tmp_path.name)
        os.kill(attendant, signal.SIGKILL)
        await until(lambda: name not in containers(), "it is removed", 60)
        await until(lambda: heard.ready == 1, "another one serves", 60)
        assert inside not in adopted
        assert (await said(runtime, b"x")).error is None


@pytest.mark.parametrize(
    ("isolated", "listens_on"),
    [(False, "0.0.0.0"), (False, "127.0.0.1"), (False, "own"), (True, "127.0.0.1")],
)
async def test_it_is_reached_without_a_port_of_this_machine(
    tmp_path: Path, *, isolated: bool, listens_on: str
) -> None:
    environment = {"LISTENS_ON": listens_on}
    asked = context(tmp_path, network_isolated=isolated, environment=environment)
    async with running(asked, Heard()) as runtime:
        assert (await said(runtime, b"x")).error is None
        [name] = containers_of(tmp_path.name)
        assert engine_says("port", name) == ""


async def test_a_server_that_closes_each_connection_is_asked_over_new_ones(tmp_path: Path) -> None:
    asked = context(tmp_path, environment={"ANSWERS_ONCE": "1"})
    async with running(asked, Heard()) as runtime:
        for _ in range(3):
            lanes = range(runtime.lanes)
            found = await asyncio.gather(*(said(runtime, b"[1]", lane=each) for each in lanes))
            assert [each.body for each in found] == [b"[1]"] * runtime.lanes


async def test_without_the_process_that_makes_sockets_it_is_started_again(tmp_path: Path) -> None:
    heard = Heard()
    async with running(context(tmp_path), heard) as runtime:
        attendant = runtime.pids[0]  # type: ignore[attr-defined]
        [maker] = [pid for pid in child_pids(attendant) if name_of(pid) == name_of(attendant)]
        os.kill(maker, signal.SIGKILL)
        await until(lambda: heard.ready == 1, "another one serves", 60)
        assert (await said(runtime, b"x")).error is None


def name_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An engine that runs Podman's containers and says process ids that are not theirs, as one does
    whose containers are another machine's."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncase "$*" in *State.Pid*) echo $PPID;; *) exec podman "$@";; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return "docker"


async def test_one_of_an_engine_that_hangs_ends_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = tmp_path / "hangs"
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ncase "$1" in kill|rm) test -e "{hangs}" && exec sleep 60;; esac\n'
        f'exec "{shutil.which(ENGINE)}" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(engines, "ANSWER_S_MAX", 1.0)
    lines: list[str] = []
    runtime = await load_payload_runtime(context(tmp_path, log=lines.append), Heard())
    _, inside = runtime.pids  # type: ignore[attr-defined]
    hangs.touch()
    await runtime.close()
    await until(lambda: not Path(f"/proc/{inside}").exists(), "its process has ended", 30)
    hangs.unlink()
    [name] = containers_of(tmp_path.name)
    assert any(f"rm --force {name}`" in line for line in lines)
    engine_says("rm", "--force", name)


async def test_one_that_can_not_be_entered_is_reached_by_a_port(
    tmp_path: Path, elsewhere: str
) -> None:
    async with running(context(tmp_path, by=elsewhere), Heard()) as runtime:
        assert (await said(runtime, b"x")).error is None
        [name] = containers_of(tmp_path.name)
        assert engine_says("port", name).startswith("8080/tcp -> 127.0.0.1:")


async def test_one_that_can_not_be_entered_has_a_network_or_an_error(
    tmp_path: Path, elsewhere: str
) -> None:
    with pytest.raises(ModelError, match="the container's network can't be entered"):
        async with running(context(tmp_path, by=elsewhere, network_isolated=True), Heard()):
            pass


async def test_what_it_prints_by_the_megabyte_holds_nobody_up(tmp_path: Path) -> None:
    lines: list[str] = []
    async with running(context(tmp_path, log=lines.append), Heard()) as runtime:
        assert (await said(runtime, b"!print 50000")).error is None
        assert (await said(runtime, b"x")).error is None


CDI = Path("/var/run/cdi")


@pytest.fixture
def devices() -> Iterator[None]:
    """Two devices under the names of NVIDIA's, each a node and a variable; there is no GPU here."""
    engine()
    if ENGINE != "podman" or os.geteuid() or any(CDI.glob("*nvidia*")):
        pytest.skip(NO_ENGINE.format("names of devices are made for Podman of root, beside no GPU"))
    CDI.mkdir(exist_ok=True)
    names = [
        {
            "name": name,
            "containerEdits": {
                "env": [f"DEVICE_{name}=given"],
                "deviceNodes": [{"path": f"/dev/gpu{name}", "hostPath": "/dev/null"}],
            },
        }
        for name in "01"
    ]
    told = {"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": names}
    with (CDI / "penstock-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two files that name a device cancel each other
        file = CDI / "penstock-tests.json"
        file.write_text(json.dumps(told))
        try:
            yield
        finally:
            file.unlink()


@pytest.mark.usefixtures("devices")
async def test_it_has_exactly_the_devices_of_its_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    environment = {"NVIDIA_VISIBLE_DEVICES": "all"}
    async with running(context(tmp_path, accelerators=1, environment=environment), Heard()) as one:
        facts = json.loads((await said(one, b"!facts")).body)
        variables = facts["environment"]
        assert variables["DEVICE_1"] == "given"
        assert "DEVICE_0" not in variables
        assert variables["NVIDIA_VISIBLE_DEVICES"] == "void", "NVIDIA's runtime gives none besides"
        assert [each for each in facts["devices"] if "gpu" in each] == ["gpu1"]


@pytest.mark.usefixtures("devices")
async def test_two_containers_of_an_instance_have_a_device_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    one_device = context(tmp_path, accelerators=1)
    another = replace(one_device, endpoint_name="other")
    async with running(one_device, Heard()) as one, running(another, Heard()) as other:
        seen = [json.loads((await said(each, b"!facts")).body) for each in (one, other)]
        found = [{"DEVICE_0", "DEVICE_1"} & each["environment"].keys() for each in seen]
        assert found == [{"DEVICE_0"}, {"DEVICE_1"}]


@pytest.mark.usefixtures("devices")
async def test_a_device_that_no_specification_names_is_refused_with_the_way_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(ModelError) as caught:
        async with running(context(tmp_path, accelerators=1), Heard()):
            pass
    assert "unresolvable CDI devices nvidia.com/gpu=7" in caught.value.message
    assert "nvidia-ctk cdi generate" in caught.value.hint


def test_docker_is_told_of_devices_by_its_own_option() -> None:
    found = pairs(replace(SPEC, docker=True, devices=("0", "2")))
    assert ("--gpus", '"device=0,2"') in found
