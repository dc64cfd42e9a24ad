"""A host that is told of a model with which hosts before it crashed leaves it alone: for a while,
until its artifact is another one, or until somebody asks for it by name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import model_files
from tests.kit.instances import FrameAnswer, FrameClient, instance
from tests.kit.polling import wait_until

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.model_prefix import ModelPrefix
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.wire import frames

HOST = 7
BAD = "bad"
ANSWER = {"predictions": [[9.0, 10.5, 12.0]]}


class QuarantineHost:
    def __init__(self, client: FrameClient, prefix: Path) -> None:
        self.client = client
        self.prefix = prefix

    def load(self, digest: str, *, seconds: float = 600.0, **more: Any) -> None:
        told = {"model": BAD, "seconds": seconds, "digest": digest, "message": "it crashed 2 hosts"}
        settings = {"multi_model": {"keeps_models": True, "quarantined": [told]}} | more
        self.client.serve(HOST, f"{self.prefix.as_uri()}/", **settings)

    def ask(self, model: str) -> FrameAnswer:
        return self.client.invoke(
            HOST, b"[[1, 0, 0, 2]]", content_type="application/json", target_model=model
        )

    def refusal(self) -> str:
        """What the bad model's caller is told; empty if it is answered."""
        answer = self.ask(BAD)
        return str(answer.error["code"]) if answer.kind == frames.ERROR else ""

    def models(self, **call: Any) -> dict[str, Any]:
        return self.client.control(op="models", copy=HOST, **call)

    def row(self) -> dict[str, Any]:
        rows = self.models(list={"after": "", "limit": 10})["models"]
        return next(row for row in rows if row["model"] == BAD)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[QuarantineHost]:
    prefix = tmp_path / "models"
    for name in ("good", BAD):
        model_files.affine(prefix / name)
    with instance(tmp_path / "run", memory_bytes=4 << 30) as running:
        client = running.client()
        yield QuarantineHost(client, prefix)
        client.close()


@pytest.fixture
def digest(host: QuarantineHost, tmp_path: Path) -> str:
    """Of the bad model, as every cache has it."""
    prefix = ModelPrefix(f"{host.prefix.as_uri()}/", ArtifactSettings())
    return prefix.fetch(BAD, ArtifactCache(tmp_path / "other")).detected.digest


def test_it_is_refused_with_a_reason_and_others_are_answered(
    host: QuarantineHost, digest: str
) -> None:
    host.load(digest)
    assert (host.row()["state"], host.row()["error"]["code"]) == (
        "failed",
        "target-model-quarantined",
    )
    for _ in range(3):  # also once its place was looked at
        told = host.ask(BAD).error
        assert told["code"] == "target-model-quarantined"
        assert "it crashed 2 hosts" in told["message"]
    assert host.ask("good").json == ANSWER


def test_the_same_content_that_was_copied_anew_is_the_same_model(
    host: QuarantineHost, digest: str
) -> None:
    host.load(digest)
    shutil.copytree(host.prefix / BAD, host.prefix / ".again")
    shutil.rmtree(host.prefix / BAD)
    os.rename(host.prefix / ".again", host.prefix / BAD)
    assert {host.refusal() for _ in range(3)} == {"target-model-quarantined"}


def test_another_artifact_is_another_model(host: QuarantineHost, digest: str) -> None:
    host.load(digest)
    assert host.refusal()
    (host.prefix / BAD / "note.txt").write_text("corrected")
    wait_until(lambda: not host.refusal(), "the corrected model answers")
    assert host.ask(BAD).json == ANSWER


def test_whoever_asks_for_it_by_name_gives_it_another_chance(
    host: QuarantineHost, digest: str
) -> None:
    host.load(digest)
    refused = host.models(load=BAD, wait_s=20.0, if_room=True)
    assert refused["error"]["code"] == "target-model-quarantined"  # that wishes for all
    assert host.models(load=BAD, wait_s=20.0)["state"] == "loaded"
    assert host.ask(BAD).json == ANSWER


def test_a_schedule_that_keeps_it_warm_gives_it_none(host: QuarantineHost, digest: str) -> None:
    """Else each host would begin with loading the model that ends it."""
    host.load(digest, environment={"PENSTOCK_KEEP_WARM": f"daily 00:00-24:00: {BAD}"})
    wait_until(lambda: host.row()["pinned"], "the schedule has begun")
    assert host.row()["state"] == "failed"
    assert host.refusal() == "target-model-quarantined"


def test_it_ends_by_itself(host: QuarantineHost, digest: str) -> None:
    host.load(digest, seconds=0.5)
    wait_until(lambda: not host.refusal(), "the time is over")
