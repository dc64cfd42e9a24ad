"""Updates of an endpoint that streams, as unmodified boto3 asks for them: what the pieces come to
decides, and not where they were cut. No caller loses any of its stream."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.kit.python_models import pipeline
from tests.kit.repeating import Repeating
from tests.kit.servers import Server
from tests.system.test_agreement import settled, story, update

pytestmark = pytest.mark.system

DECLARED = """
schema: 1
steps:
  - name: talk
    python: {function: talk}
    inputs: {number: $request.number}
    emit: [{kind: text, data: {text: $piece}}]
"""
#: Says a sentence, cut into pieces of a size.
TALKS = """
def talk(number):
    said = f"{words}: {{number}}, and that is all."
    for at in range(0, len(said), {size}):
        yield said[at : at + {size}]
"""
SAID = "The answer is: {}, and that is all."
OTHER = "No answer came: {}, and that is all."
#: Wide bounds, so that fewer pairs decide.
BOUNDS = "text tolerance=0 disagree=0.05 errors=0.05 slower=0"


class Listeners(Repeating):
    """Threads that ask `shop` one number after the other, and hear its whole answers."""

    def __init__(self, server: Server) -> None:
        super().__init__(threads=2)
        self._runtime = server.client("sagemaker-runtime")
        self.heard: Counter[str] = Counter()
        self.pieces: set[int] = set()  #: of one answer

    def step(self) -> None:
        number = self.heard.total() % 100
        answer = self._runtime.invoke_endpoint_with_response_stream(
            EndpointName="shop",
            Body=json.dumps({"number": number}),
            ContentType="application/json",
        )
        body = b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"]).decode()
        texts = [
            json.loads(block.partition("data: ")[2])["text"]
            for block in body.split("\n\n")
            if block.startswith("event: text")
        ]
        said = "".join(texts)
        assert said in {SAID.format(number), OTHER.format(number)}
        with self.lock:
            self.heard[said.partition(":")[0]] += 1
            self.pieces.add(len(texts))


def test_where_a_stream_is_cut_does_not_matter_and_what_it_says_does(
    empty_server: Server, tmp_path: Path
) -> None:
    words = SAID.partition(":")[0], OTHER.partition(":")[0]
    for name, said, size in (("old", words[0], 9), ("same", words[0], 1), ("other", words[1], 9)):
        code = TALKS.format(words=said, size=size)
        empty_server.prepare(name, pipeline(tmp_path / name, DECLARED, code))
    client = empty_server.client("sagemaker")
    client.create_endpoint(EndpointName="shop", EndpointConfigName="old")
    empty_server.wait_in_service("shop")
    with Listeners(empty_server) as listeners:
        update(client, "other", BOUNDS)
        described = settled(client)
        assert described["EndpointConfigName"] == "old"
        assert "answers disagree (sure to" in described["FailureReason"]
        assert story(empty_server)["agreement"]["pairs"]["differ"] > 0
        update(client, "same", BOUNDS)
        assert settled(client)["EndpointConfigName"] == "same"
        pairs = story(empty_server)["agreement"]["pairs"]
    assert pairs["agree"] > 50
    assert pairs["differ"] == pairs["new_failed"] == pairs["old_failed"] == 0
    assert min(listeners.pieces) < 6
    assert max(listeners.pieces) > 30, "callers had streams of both"
