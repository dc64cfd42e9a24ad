"""`penstock replay` whose answers a scorer judges, and of streams, against a server that plays the
endpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import http_servers
from tests.kit.http_servers import Reply, SeenRequest

from penstock.wire.capture_lines import CapturedCall, line

Command = Callable[..., tuple[int, str, str]]
SSE = "text/event-stream"


def said(pieces: list[str]) -> bytes:
    """A stream of these."""
    return b"".join(b"data: %s\n\n" % json.dumps({"text": one}).encode() for one in pieces)


class Endpoints:
    """`echo` answers with half of what it is sent; `judge` as the test says."""

    def __init__(self) -> None:
        self.verdict: Reply = (200, {}, b"true")
        self.judged: list[dict[str, Any]] = []
        self.url = ""

    def reply(self, seen: SeenRequest) -> Reply:
        if seen.path == "/":
            name = json.loads(seen.body)["EndpointName"]
            missing = {"__type": "ValidationException", "message": f'Could not find "{name}".'}
            known = name in ("echo", "judge")
            return (200, {}, b"{}") if known else (400, {}, json.dumps(missing).encode())
        if seen.path == "/endpoints/judge/invocations":
            assert seen.headers["content-type"] == "application/json"
            self.judged.append(json.loads(seen.body))
            return self.verdict
        if seen.headers.get("accept") == SSE:
            return 200, {"Content-Type": SSE}, said(json.loads(seen.body))
        return 200, {}, b"%g" % (float(seen.body) / 2)


@pytest.fixture
def server() -> Iterator[Endpoints]:
    made = Endpoints()
    with http_servers.answering(made.reply) as made.url:
        yield made


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Twelve calls whose captured answers are not what `echo` gives now, one whose answer is,
    and one whose answer was not captured."""
    answers = [*(b"%d" % number for number in range(100, 112)), b"25", None]
    calls = [CapturedCall(1e9, b"50", answer) for answer in answers]
    text = b"".join(
        line(call, str(number), csv_types=(), json_types=()) for number, call in enumerate(calls)
    )
    (tmp_path / "calls.jsonl").write_bytes(text)
    return tmp_path


def replayed(penstock: Command, server: Endpoints, capture: Path) -> tuple[int, dict[str, Any]]:
    words = ("--to", "echo", "--like", "scorer=judge", "--json", "--url", server.url)
    status, out, err = penstock("replay", str(capture), *words)
    assert out, err
    return status, json.loads(out)


def test_the_scorer_judges_answers_that_are_not_the_same(
    penstock: Command, server: Endpoints, capture: Path
) -> None:
    status, told = replayed(penstock, server, capture)
    assert (status, told["outcomes"]) == (0, {"agree": 13, "unpaired": 1})
    assert sorted(one["old"] for one in server.judged) == [*range(100, 112)]
    assert {(one["request"], one["new"]) for one in server.judged} == {(50, 25)}
    of_the_scorer = told["tests"][-1]
    assert [of_the_scorer[name] for name in ("test", "hits", "trials")] == ["scorer", 0, 12]
    server.verdict = (200, {}, b"[0.1]")
    status, told = replayed(penstock, server, capture)
    assert (status, told["outcomes"]) == (1, {"agree": 1, "differ": 12, "unpaired": 1})
    assert "12 of 13 answers disagree" in told["why"]


@pytest.mark.parametrize(
    ("verdict", "cause"),
    [
        ((200, {}, b"maybe"), "scorer-answer-invalid: the scorer answered 'maybe'"),
        ((424, {"x-amzn-errortype": "ModelError"}, b'{"Message": "it raised"}'), "it raised"),
    ],
)
def test_a_scorer_that_fails_ends_it_with_the_reason(
    penstock: Command, server: Endpoints, capture: Path, verdict: Reply, cause: str
) -> None:
    server.verdict = verdict
    status, told = replayed(penstock, server, capture)
    assert (status, told["outcomes"]) == (1, {"agree": 1, "unpaired": 1, "unscored": 12})
    assert told["why"].startswith("the scorer judge failed for 12 of 12 pairs: ")
    assert cause in told["why"]
    assert told["errors"] == {}, "the endpoint has answered all of them"


def test_a_scorer_that_is_not_there_sends_no_call(
    penstock: Command, server: Endpoints, capture: Path
) -> None:
    words = ("--to", "echo", "--like", "scorer=nobody", "--url", server.url)
    status, out, err = penstock("replay", str(capture), *words)
    assert (status, out) == (1, "")
    assert 'Could not find "nobody"' in err


def test_a_stream_is_what_its_pieces_come_to(
    penstock: Command, server: Endpoints, tmp_path: Path
) -> None:
    asked = b'["a b", " c"]'  # and so it is answered
    calls = [
        CapturedCall(1e9, asked, said(pieces), answer_type=SSE)
        for pieces in (["a", " b", " c"], ["a", " b", " d"])
    ]
    texts = [line(call, "1", csv_types=(), json_types=()) for call in calls]
    (tmp_path / "calls.jsonl").write_bytes(b"".join(texts))
    words = ("--to", "echo", "--like", "exact", "--json", "--url", server.url)
    _, out, err = penstock("replay", str(tmp_path), *words)
    assert out, err
    assert json.loads(out)["outcomes"] == {"agree": 1, "differ": 1}
