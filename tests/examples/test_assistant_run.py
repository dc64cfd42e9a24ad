"""The one command of the example, on its committed models: it starts all, answers, and ends all."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.polling import wait_until

for package in ("faiss", "bm25s", "openvino_genai"):
    pytest.importorskip(package, reason="the example's requirements are not installed")

from tests.examples.assistant_site import (  # noqa: E402 - needs what was just looked for
    ASSISTANT,
    Event,
    events_of,
    text_of,
)

pytestmark = [pytest.mark.system, pytest.mark.integration]


class Running:
    def __init__(self, state_dir: Path) -> None:
        self.log_path = state_dir.parent / "run.log"
        argv = [
            *(sys.executable, str(ASSISTANT / "run.py"), "--port", "0", "--page-port", "0"),
            *("--state-dir", str(state_dir)),
        ]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
        wait_until(
            lambda: "assistant ready" in self.log() or self.process.poll() is not None,
            "the assistant is ready",
            110,
        )
        assert self.process.poll() is None, self.log()
        self.port = int(self._said(r"assistant ready: http://127\.0\.0\.1:(\d+)"))
        self.platform_port = int(self._said(r"platform starts at http://127\.0\.0\.1:(\d+)"))

    def log(self) -> str:
        return self.log_path.read_text()

    def _said(self, pattern: str) -> str:
        found = re.search(pattern, self.log())
        assert found is not None, self.log()
        return found[1]

    def ask(self, question: str, history: list[dict[str, str]]) -> list[Event]:
        """As the page does."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps({"question": question, "messages": history})
        connection.request("POST", "/ask", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        events = list(events_of(iter(lambda: answer.read1(65_536), b"")))
        connection.close()
        return events


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("assistant_run") / "state")
    yield made
    if made.process.poll() is None:
        made.process.terminate()
        made.process.wait(60)


def data_of(events: list[Event], kind: str) -> list[Any]:
    return [data for each, data in events if each == kind]


def test_a_question_is_answered_with_a_product_that_fits(running: Running) -> None:
    events = running.ask("I need a blue tent under $200", [])
    named = data_of(events, "product")
    assert named, text_of(events)
    assert named[0]["title"] in text_of(events)
    assert all("tent" in each["title"] for each in named)
    assert named[0]["price_cents"] <= 20_000
    assert data_of(events, "image")[0]["alt"] == "blue tent"
    assert [each["product"] for each in data_of(events, "link")] == [each["id"] for each in named]
    assert not data_of(events, "notice")
    assert set(events[-1][1]["steps"].values()) == {"done"}


def test_a_conversation_goes_on(running: Running) -> None:
    first = running.ask("which trail shoes are waterproof?", [])
    history = [
        {"role": "user", "content": "which trail shoes are waterproof?"},
        {"role": "assistant", "content": text_of(first)},
    ]
    second = running.ask("what does it cost?", history)
    named = data_of(first, "mention")[0]
    assert f"${data_of(first, 'product')[0]['price_cents'] / 100:.2f}" in text_of(second)
    assert named["id"] in [each["id"] for each in data_of(second, "mention")]


def test_small_talk_brings_no_cards(running: Running) -> None:
    events = running.ask("thank you very much", [])
    assert text_of(events)
    assert not data_of(events, "mention")


def test_the_load_test_counts_answers(running: Running) -> None:
    argv = [
        *(
            sys.executable,
            str(ASSISTANT / "load_test.py"),
            "--url",
            f"http://127.0.0.1:{running.platform_port}",
        ),
        *("--readers", "2", "--seconds", "2"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    seen = json.loads(done.stdout)
    assert seen["failed"] == seen["notices"] == 0
    assert seen["answers_per_s"] > 0


def test_an_interrupt_ends_everything(running: Running) -> None:
    """The last one here: nothing listens afterwards."""
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(60) == 0, running.log()
    assert running.log().endswith("ended\n")
    for port in (running.port, running.platform_port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with pytest.raises(ConnectionRefusedError):
            connection.request("GET", "/")
