"""A paced engine in a real instance with a real engine process: what other engines do, it does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.instance.generation_client import StreamClient
from tests.kit.instances import instance
from tests.kit.polling import wait_until

COMPLETIONS = {"asked": {"operation": "completions"}, "door": "openai"}
PACE = "{step_s: 0.002, sequence_s: 0.0, prefill_token_s: 0.0, prefix_tokens: 4, answer_tokens: 9}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paced")
    (folder / "model.yaml").write_text(
        f"schema: 1\nruntime: paced\nengine: {{sequences_max: 4, pace: {PACE}}}\n"
    )
    return folder


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> Iterator[StreamClient]:
    with instance(tmp_path) as running:
        made = StreamClient(running.path)
        assert made.load(1, folder).get("ok")
        yield made
        made.close()


def copy_status(client: StreamClient) -> dict[str, Any]:
    (found,) = client.control(op="status")["copies"]
    return dict(found)


def engine_pids() -> list[int]:
    """Of engine processes below this test."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"generation.engine_process" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [each for each in found if _below(each, os.getpid())]


def _below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def test_answers_whole_streamed_and_stopped_are_of_one_text(client: StreamClient) -> None:
    asked = {"prompt": "Once upon a time", "temperature": 0}
    whole = client.ask(1, asked, **COMPLETIONS).json
    choice, usage = whole["choices"][0], whole["usage"]
    assert (choice["finish_reason"], usage["completion_tokens"]) == ("stop", 9)
    assert (len(choice["text"].split()), usage["prompt_tokens"]) == (9, 4)
    streamed = client.ask(1, asked | {"stream": True}, **COMPLETIONS).lines
    assert "".join(each["choices"][0]["text"] for each in streamed[:-1]) == choice["text"]
    cut = client.ask(1, asked | {"max_tokens": 2}, **COMPLETIONS).json["choices"][0]
    assert choice["text"].startswith(cut["text"])
    assert cut["finish_reason"] == "length"
    stop = choice["text"].split()[4]
    stopped = client.ask(1, asked | {"stop": [stop]}, **COMPLETIONS).json["choices"][0]
    assert stopped["text"] == choice["text"].partition(stop)[0]
    assert stopped["finish_reason"] == "stop"


def test_what_the_engine_has_not_is_refused_and_nothing_else_is_harmed(
    client: StreamClient,
) -> None:
    asked = {"prompt": "Hello", "max_tokens": 3}
    refused = client.ask(1, asked | {"logprobs": 1}, **COMPLETIONS)
    assert refused.error["code"] == "logprobs-unsupported"
    schema = {"response_format": {"type": "json_object"}}
    chat = {"messages": [{"role": "user", "content": "Hello"}]} | schema
    refused = client.ask(1, chat, asked={"operation": "chat"}, door="openai")
    assert refused.error["code"] == "json-schema-unsupported"
    assert client.ask(1, asked, **COMPLETIONS).json["usage"]["completion_tokens"] == 3


def test_an_engine_that_died_comes_back_with_the_same_answers(client: StreamClient) -> None:
    asked = {"prompt": "Hello", "max_tokens": 8, "temperature": 1.0, "seed": 4}
    before = client.ask(1, asked, **COMPLETIONS).json["choices"][0]["text"]
    (pid,) = engine_pids()
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: copy_status(client)["state"] == "ready" and engine_pids() not in ([], [pid]),
        "another engine",
        60.0,
    )
    assert client.ask(1, asked, **COMPLETIONS).json["choices"][0]["text"] == before


def test_its_process_loads_no_library_of_tensors_and_no_tokenizer(client: StreamClient) -> None:
    """A copy is to cost next to nothing: dozens of them run beside each other."""
    (pid,) = engine_pids()
    loaded = {
        line.rpartition("/")[2].partition(".")[0]
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        if "site-packages" in line
    }
    assert loaded == set()
