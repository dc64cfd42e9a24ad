"""A pipeline in a real instance process, asked over its frames."""

from __future__ import annotations

from pathlib import Path

from tests.instance.generation_client import StreamClient
from tests.kit.instances import instance
from tests.kit.polling import wait_until

from penstock.wire import frames

DECLARED = """
schema: 1
steps:
  - name: talk
    python: {function: talk}
    inputs: {sentences: $request.sentences}
    emit: [{kind: text, data: {text: $piece}, count: sentences}]
  - name: card
    value: {id: x}
    emit: [{kind: product, after: {step: talk, position: 1}}]
"""
CODE = """
def talk(sentences):
    for number in range(sentences):
        yield f"This is {number}. "
"""
STREAM = {"asked": {"stream": True}}


def test_a_folder_with_a_pipeline_is_loaded_streams_and_is_cancelled(tmp_path: Path) -> None:
    artifact, runs = tmp_path / "artifact", tmp_path / "instance"
    (artifact / "code").mkdir(parents=True)
    runs.mkdir()
    (artifact / "pipeline.yaml").write_text(DECLARED)
    (artifact / "code" / "steps.py").write_text(CODE)
    with instance(runs) as running:
        client = StreamClient(running.path)
        loaded = client.load(1, artifact)
        assert loaded.get("ok"), loaded
        assert loaded["description"]["runtime"] == "pipeline"
        ident = client.begin(1, {"sentences": 2}, **STREAM)
        client.whole(ident)
        chunks = [each for each in client.parts[ident] if each.kind == frames.CHUNK]
        assert b"".join(each.payload[each.meta_bytes :] for each in chunks) == (
            b'event: text\ndata: {"text":"This is 0. "}\n\n'
            b'event: product\ndata: {"id":"x"}\n\n'
            b'event: text\ndata: {"text":"This is 1. "}\n\n'
            b'event: done\ndata: {"events":3,"steps":{"talk":"done","card":"done"}}\n\n'
        )
        endless = [client.begin(1, {"sentences": 10**9}, **STREAM) for _ in range(5)]
        for each in endless:
            client.begun(each)
            client.cancel(each)
        wait_until(
            lambda: client.control(op="status")["copies"][0]["unanswered"] == 0, "all cancelled"
        )
        client.close()


FLOOD = """
schema: 1
steps:
  - name: flood
    python: {function: flood}
    inputs: {ends: $request.ends}
    emit: [{kind: text, data: {text: $piece}}]
"""
FLOODS = """
made = 0

def flood(ends):
    global made
    if ends:
        yield str(made)
        return
    while True:
        made += 1
        yield "x" * 100
"""
#: More than the sockets on the way and what was read of them hold together.
MORE_BYTES = 16 << 20


def test_an_answer_without_an_end_waits_for_its_reader_and_others_do_not(tmp_path: Path) -> None:
    artifact, runs = tmp_path / "artifact", tmp_path / "instance"
    (artifact / "code").mkdir(parents=True)
    runs.mkdir()
    (artifact / "pipeline.yaml").write_text(FLOOD)
    (artifact / "code" / "steps.py").write_text(FLOODS)
    with instance(runs) as running:
        reads, asks = StreamClient(running.path), StreamClient(running.path)
        assert reads.load(1, artifact).get("ok")
        endless = [reads.begin(1, {"ends": False}, **STREAM) for _ in range(4)]
        for each in endless:
            reads.begun(each)

        def made() -> bytes:
            return b"".join(asks.ask(1, {"ends": True}, **STREAM).chunks)

        wait_until(lambda: made() == made(), "nothing more is made while nobody reads")

        def read_bytes() -> int:
            return sum(len(part.payload) for each in endless for part in reads.parts[each])

        enough = read_bytes() + MORE_BYTES
        while read_bytes() < enough:
            reads.read()
        reads.close()
        wait_until(
            lambda: asks.control(op="status")["copies"][0]["unanswered"] == 0, "all have ended"
        )
        asks.close()


def test_a_whole_answer_without_an_end_fails_before_it_fills_the_memory(tmp_path: Path) -> None:
    artifact, runs = tmp_path / "artifact", tmp_path / "instance"
    (artifact / "code").mkdir(parents=True)
    runs.mkdir()
    (artifact / "pipeline.yaml").write_text(FLOOD)
    (artifact / "code" / "steps.py").write_text(FLOODS)
    with instance(runs) as running:
        client = StreamClient(running.path)
        assert client.load(1, artifact).get("ok")
        assert client.ask(1, {"ends": False}).error["code"] == "answer-too-large"

        def made() -> str:
            return str(client.ask(1, {"ends": True}).json["text"])

        wait_until(lambda: made() == made(), "the end of the endless step")
        client.close()
