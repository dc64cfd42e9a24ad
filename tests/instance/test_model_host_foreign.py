"""A foreign server that hosts the models of a host, by the container contract: it may say that it
is full, and then another of its models goes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.instances import FrameAnswer, FrameClient, instance
from tests.kit.polling import wait_until

HOST = 3
SERVER = Path(__file__).parents[1] / "kit" / "multi_model_server.py"


def weights(prefix: Path, *names: str) -> None:
    for name in names:
        (prefix / name).mkdir(parents=True)
        (prefix / name / "weights").write_text(f"of {name}")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FrameClient]:
    """Its server holds two models at a time; there are four."""
    prefix = tmp_path / "models"
    weights(prefix, "a", "b", "c", "d")
    commands = {"of-ours": [sys.executable, str(SERVER), "{port}"]}
    with instance(tmp_path / "run", artifact={"image_commands": commands}) as running:
        made = running.client()
        source = {
            "uri": f"{prefix.as_uri()}/",
            "image": "of-ours",
            "environment": {"MODELS_MAX": "2"},
        }
        loaded = made.load(
            HOST,
            prefix,
            source=source,
            multi_model={"keeps_models": True},
            memory_bytes_max=8 << 30,
        )
        assert loaded.get("ok"), loaded
        yield made
        made.close()


def ask(client: FrameClient, model: str, body: bytes = b"?") -> FrameAnswer:
    return client.invoke(HOST, body, content_type="text/plain", target_model=model)


def status(client: FrameClient) -> dict[str, Any]:
    [found] = client.control(op="status")["copies"]
    return dict(found)


def test_all_models_answer_though_the_server_holds_two(client: FrameClient) -> None:
    for _ in range(3):
        for model in "abcd":
            answer = ask(client, model).json
            assert (answer["weights"], answer["target"]) == (f"of {model}", model)
            assert status(client)["models_loaded"] <= 2
    assert answer["multi_model"] == "true"


def test_what_fits_is_learnt_and_not_asked_for_again(client: FrameClient) -> None:
    for model in "abcd":
        ask(client, model)
    story = client.control(op="explain", copy=HOST, model="d")["residency"]["story"]
    assert [step["what"] for step in story if step["what"] == "full"] == []
    story = client.control(op="explain", copy=HOST, model="c")["residency"]["story"]
    assert [step["what"] for step in story].count("full") == 1


def test_a_server_that_is_full_while_it_answers_gets_room(client: FrameClient) -> None:
    ask(client, "a")
    ask(client, "b")
    assert ask(client, "b", b"!full").json["weights"] == "of b"
    wait_until(lambda: status(client)["models_loaded"] == 1, "the other one is unloaded")
