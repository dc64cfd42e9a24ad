"""The door for files of the server's machine: whom it lets in, and what it gives to whom."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.model_prefix import ModelPrefix
from penstock.artifacts.prepare import obtain
from penstock.artifacts.sources import server_files
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.control.artifact_door import ArtifactDoor
from penstock.errors import CallerError, NotNowError
from penstock.fleet.identity import contexts
from penstock.fleet.identity.authority import Authority, key_and_request


class ArtifactDoorSite:
    """A door of one server, and a node that fetches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "state").mkdir()
        self.authority = Authority.open(folder / "state", now=time.time())
        self.bucket = folder / "bucket"
        self.bucket.mkdir()
        settings = ArtifactSettings(s3_local={"models": str(self.bucket)})
        self.door = ArtifactDoor(settings)
        self.at = self.door.bind("127.0.0.1")
        self.node = ArtifactSettings(s3_local={"models": str(self.bucket)}, server_files=self.at)
        self.cache = ArtifactCache(folder / "node-cache")
        self.comes_as(self.authority, contexts.of_instance("one"))

    def comes_as(self, authority: Authority, name: str) -> None:
        key, request = key_and_request("x")
        identity = authority.identity(key, request, name, now=time.time())
        server_files.tell(contexts.dialling(identity), contexts.SERVER)

    async def fetched(self, uri: str) -> Path:
        source = ArtifactSource(uri=uri)
        entry = await asyncio.to_thread(obtain, source, self.cache, self.node)
        return entry.root


@contextlib.asynccontextmanager
async def site_in(folder: Path) -> AsyncIterator[ArtifactDoorSite]:
    site = ArtifactDoorSite(folder)
    identity = site.authority.server_identity(now=time.time())
    await site.door.start(contexts.listening(identity))
    try:
        yield site
    finally:
        await site.door.close()


def model_in(folder: Path, **files: bytes) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    os.chmod(path, 0o755)
    return folder


async def test_a_directory_arrives_as_it_is(tmp_path: Path) -> None:
    large = os.urandom(3 * 2**20 + 17)
    async with site_in(tmp_path) as site:
        model = model_in(tmp_path / "m", model=large, empty=b"", code__run=b"#!/bin/sh\n")
        site.door.offer(ArtifactSource(uri=model.as_uri()))
        root = await site.fetched(model.as_uri())
        assert (root / "model").read_bytes() == large
        assert (root / "empty").read_bytes() == b""
        assert os.access(root / "code" / "run", os.X_OK)
        assert not os.access(root / "model", os.X_OK)


async def test_a_bucket_of_the_servers_machine_is_asked_there(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        model_in(site.bucket / "a", weights=b"w")
        site.door.offer(ArtifactSource(uri="s3://models/a"))
        root = await site.fetched("s3://models/a")
        assert (root / "weights").read_bytes() == b"w"


async def test_target_models_below_a_prefix_are_listed_and_fetched(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        model_in(site.bucket / "many" / "one", weights=b"1")
        model_in(site.bucket / "many" / "two", weights=b"2")
        site.door.offer(ArtifactSource(uri="s3://models/many/"))
        prefix = ModelPrefix("s3://models/many/", site.node)
        names_there = [entry.name for entry in await asyncio.to_thread(prefix.list)]
        direct = ModelPrefix("s3://models/many/", ArtifactSettings(s3_local=site.node.s3_local))
        assert names_there == [entry.name for entry in direct.list()]
        root = await site.fetched("s3://models/many/two")
        assert (root / "weights").read_bytes() == b"2"


@pytest.mark.parametrize(
    "uri", ["file:///etc/passwd", "/etc/passwd", "{model}/../secret", "{model}x"]
)
async def test_nothing_is_given_that_no_instance_was_told_to_load(tmp_path: Path, uri: str) -> None:
    async with site_in(tmp_path) as site:
        model = model_in(tmp_path / "m", weights=b"w")
        (tmp_path / "secret").write_text("s")
        model_in(tmp_path / "mx", weights=b"s")
        site.door.offer(ArtifactSource(uri=str(model)))
        with pytest.raises(CallerError) as refused:
            await site.fetched(uri.format(model=model))
        assert refused.value.code == "artifact-access-denied"


async def test_a_name_leads_out_of_no_artifact(tmp_path: Path) -> None:
    """No listing has such names; somebody who holds an instance's key may ask all the same."""
    async with site_in(tmp_path) as site:
        model = model_in(tmp_path / "m", weights=b"w")
        (tmp_path / "secret").write_text("s")
        (model / "link").symlink_to(tmp_path / "secret")
        site.door.offer(ArtifactSource(uri=str(model)))
        facts = os.stat(tmp_path / "secret")
        stamp = f"{facts.st_mtime_ns}-{facts.st_ctime_ns}-{facts.st_ino}-{facts.st_size}"
        for name in ("../secret", "link", "/etc/passwd"):
            asked = {"read": str(model), "name": name, "stamp": stamp}
            with pytest.raises(CallerError):
                await asyncio.to_thread(asked_of, site, asked)


def asked_of(site: ArtifactDoorSite, asked: dict[str, str]) -> Any:
    from penstock.artifacts.files.budget import Budget

    budget = Budget("test", bytes_max=2**20, seconds_max=20.0)
    return server_files._asked(site.at, asked, budget, keep=False)


@pytest.mark.parametrize("stranger", ["server", "other-deployment"])
async def test_only_instances_of_this_deployment_come_in(tmp_path: Path, stranger: str) -> None:
    async with site_in(tmp_path) as site:
        model = model_in(tmp_path / "m", weights=b"w")
        site.door.offer(ArtifactSource(uri=str(model)))
        if stranger == "server":
            site.comes_as(site.authority, contexts.SERVER)
        else:
            (tmp_path / "other").mkdir()
            other = Authority.open(tmp_path / "other", now=time.time())
            site.comes_as(other, contexts.of_instance("one"))
        with pytest.raises(NotNowError) as refused:
            await site.fetched(str(model))
        assert refused.value.code == "artifact-unreachable"


async def test_a_file_that_changes_while_it_is_read_is_not_taken(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        model = model_in(tmp_path / "m", weights=b"before" * 1_000_000)
        site.door.offer(ArtifactSource(uri=str(model)))
        asked = {"list": str(model), "within": ""}
        [row] = (await asyncio.to_thread(asked_of, site, asked))[0]["files"]
        (model / "weights").write_bytes(b"after" * 1_000_000)
        with pytest.raises(NotNowError) as refused:
            await asyncio.to_thread(
                asked_of, site, {"read": str(model), "name": "weights", "stamp": row["stamp"]}
            )
        assert refused.value.code == "artifact-changed"


async def test_a_door_that_is_gone_is_tried_again_later(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        await site.door.close()
        with pytest.raises(NotNowError) as refused:
            await site.fetched("/anything")
        assert refused.value.code == "artifact-unreachable"
