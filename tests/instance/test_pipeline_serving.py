"""A pipeline in a real instance process, asked over its frames."""

from __future__ import annotations

from pathlib import Path

from tests.instance.generation_client import StreamClient
from tests.instance.instance_harness import instance, wait_until

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
