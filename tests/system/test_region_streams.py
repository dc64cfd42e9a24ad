"""Streams through an orchestrator while instances in its regions are killed under them."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kit.polling import wait_until
from tests.kit.regions import Orchestrated, regions_up
from tests.kit.servers import Server

pytestmark = pytest.mark.system

TOKENS = 60
AT_ONCE = 8
ROUNDS = 5
PACE = {"step_s": 0.03, "sequence_s": 0.0, "prefill_token_s": 0.0}
ENGINE = {"schema": 1, "runtime": "paced", "engine": {"sequences_max": AT_ONCE, "pace": PACE}}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Orchestrated]:
    artifact = tmp_path / "paced"
    artifact.mkdir()
    (artifact / "model.yaml").write_text(yaml.safe_dump(ENGINE))
    with regions_up(tmp_path, "eu", "us") as servers:
        for server in servers.values():
            server.deploy("chat", artifact)
        served = Orchestrated(tmp_path, servers, mode="manual").start()
        try:
            served.wait_serving("chat", "eu", "us")
            yield served
        finally:
            served.stop()


def body_of(number: int) -> tuple[str, dict[str, Any]]:
    """Path and body of a stream; half of them are chats."""
    words = f"Tell me story {number}."
    common = {"model": "chat", "max_tokens": TOKENS, "stream": True, "temperature": 0}
    common |= {"ignore_eos": True}
    if number % 2:
        return "/v1/completions", common | {"prompt": words}
    return "/v1/chat/completions", common | {"messages": [{"role": "user", "content": words}]}


class ReadStream:
    """One client's answer, read piece by piece."""

    def __init__(self, url: str, number: int) -> None:
        path, body = body_of(number)
        self._request = urllib.request.Request(
            url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        self.text = ""
        self.pieces = 0
        self.finishes: list[str] = []
        self.errors: list[Any] = []
        self.ended = False

    def read(self) -> ReadStream:
        with urllib.request.urlopen(self._request, timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    self._take(json.loads(line[6:]))
                self.ended = self.ended or line.startswith(b"data: [DONE]")
        return self

    def _take(self, fields: dict[str, Any]) -> None:
        if "error" in fields:
            self.errors.append(fields["error"])
            return
        for choice in fields["choices"]:
            piece = choice.get("text") or choice.get("delta", {}).get("content") or ""
            self.text += piece
            self.pieces += bool(piece)
            if choice["finish_reason"]:
                self.finishes.append(choice["finish_reason"])


def kill_instance(server: Server) -> None:
    (copy,) = server.copies("chat")
    os.kill(copy["pid"], signal.SIGKILL)


def test_streams_whose_instances_are_killed_end_as_if_nothing_had_been(site: Orchestrated) -> None:
    """Each round kills the one instance of one region when every stream is under way. What the
    region reports is gone on with; the texts are those of streams that nobody disturbed."""
    servers = list(site.regions.values())
    with ThreadPoolExecutor(AT_ONCE) as threads:
        undisturbed = list(
            threads.map(lambda number: ReadStream(site.url, number).read().text, range(AT_ONCE))
        )
        broken = []
        for turn in range(ROUNDS):
            site.wait_serving("chat", "eu", "us")
            streams = [ReadStream(site.url, number) for number in range(AT_ONCE)]
            reading = [threads.submit(stream.read) for stream in streams]
            wait_until(
                lambda all_=streams: all(one.pieces >= 5 for one in all_),
                "every stream under way",
                60,
            )
            victim = servers[turn % len(servers)]
            kill_instance(victim)
            for one in reading:
                one.result()
            for number, stream in enumerate(streams):
                if stream.errors or not stream.ended or stream.finishes != ["length"]:
                    broken.append((turn, number, stream.errors, stream.finishes))
                assert stream.text == undisturbed[number]
            wait_until(
                lambda one=victim: [copy["state"] for copy in one.copies("chat")] == ["ready"],
                "another instance",
                90,
            )
        page = site.page()
    assert broken == []
    assert [len(text) for text in undisturbed] == [4 * TOKENS] * AT_ONCE
    resumed = [line for line in page.splitlines() if 'sent_again_total{reason="resumed"}' in line]
    assert resumed, "no stream was broken: the kills were of no use"
