"""An instance on another machine, as that machine keeps it: real processes, values between them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.fleet.node_site import ID, NodeSite, client_of, node_site
from tests.kit import model_files

from penstock import __version__
from penstock.fleet.node import default_cache_dir
from penstock.wire import frames


def load_call(uri: str) -> dict[str, object]:
    return {
        "op": "load",
        "copy": 1,
        "endpoint": "e",
        "variant": "v",
        "cores": 1.0,
        "source": {"uri": uri},
    }


def seen_by_others(pid: int) -> bytes:
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))


async def test_an_instance_is_started_serves_and_is_stopped(tmp_path: Path) -> None:
    async with node_site(tmp_path / "site") as site:
        begun = await site.start()
        assert begun["address"].startswith("tls:127.0.0.1:"), begun
        client = await client_of(site, begun["address"])
        model = model_files.affine(tmp_path / "m")
        loaded = await client.call(load_call(model.as_uri()), timeout_s=60)
        assert loaded["description"]["inputs"][0]["name"] == "x"
        client.close()
        await site.node.stop(20.0)
        assert (await site.wait_ended())["code"] == 0


async def test_the_key_never_leaves_the_node(tmp_path: Path) -> None:
    async with node_site(tmp_path / "site") as site:
        told = await site.node.describe()
        assert "PRIVATE" not in str(told)
        begun = await site.start()
        assert "PRIVATE" not in str(begun)
        assert set(told) == {"version", "wire", "request"}
        assert (told["version"], told["wire"]) == (__version__, frames.LAYOUT)
        assert b"PRIVATE" not in seen_by_others(begun["pid"])


async def test_its_log_comes_home_piece_by_piece_and_its_end_is_told(tmp_path: Path) -> None:
    async with node_site(tmp_path / "site") as site:
        begun = await site.start()
        os.kill(begun["pid"], signal.SIGKILL)
        ended = await site.wait_ended()
        assert ended["code"] == -signal.SIGKILL
        assert "signal 9" in ended["story"]
        assert b"the instance ended: signal 9" in site.log
        assert (await site.node.watch(site.log_at, 0.0))["log"] == b""  # nothing twice


async def test_what_a_host_noted_of_its_models_comes_with_its_end(tmp_path: Path) -> None:
    """Who is to blame for a crash is judged where the server is."""
    async with node_site(tmp_path / "site") as site:
        begun = await site.start()
        (site.node._work_dir / f"{ID}.3").write_bytes(b"noted")
        os.kill(begun["pid"], signal.SIGSEGV)
        assert (await site.wait_ended())["notes"] == {f"{ID}.3": "bm90ZWQ="}


async def test_an_instance_that_does_not_start_says_why(tmp_path: Path) -> None:
    async with node_site(tmp_path / "site") as site:
        error = (await site.start(memory_bytes="many"))["error"]
        assert error["code"] == "instance-died"
        await site.watch(0.0)
        assert b"instance-settings" in site.log


def test_nothing_is_left_on_the_node(tmp_path: Path) -> None:
    async def test() -> Path:
        async with node_site(tmp_path / "site") as site:
            await site.start()
            return site.node._folder

    folder = asyncio.run(test())
    assert not folder.exists()


def test_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """A node that lost its power comes back with them."""
    first = NodeSite(tmp_path / "one")
    killed = first.node._folder.with_name("penstock-node-4194305-killed")  # above every pid
    killed.mkdir()
    second = NodeSite(tmp_path / "two")
    assert not killed.exists()
    assert first.node._folder.exists()
    for site in (first, second):
        asyncio.run(site.node.forget())


def test_the_cache_is_of_the_nodes_user() -> None:
    assert default_cache_dir({"XDG_CACHE_HOME": "/var/c"}) == Path("/var/c/penstock/node")
    home = Path.home() / ".cache" / "penstock" / "node"
    assert default_cache_dir({"XDG_CACHE_HOME": "relative"}) == default_cache_dir({}) == home
