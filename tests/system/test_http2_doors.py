"""HTTP/2 at the HTTP port of a real server: curl, httpx and clients that reset, stall and stay."""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.kit.certificates import self_signed
from tests.kit.generation_models import write_model
from tests.kit.http2_clients import Http2Client
from tests.kit.polling import wait_until
from tests.kit.python_models import ECHO, python_model
from tests.kit.servers import Server, up

pytestmark = pytest.mark.system

#: Says back what it is sent, after so many seconds as its first bytes say.
SLOW_ECHO = """
import time

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    time.sleep(float(body.split(b" ")[0]))
    return body, content_type
"""
BYTES = "application/octet-stream"
ECHOES = "/endpoints/h2-echo/invocations"
SLOW = "/endpoints/h2-slow/invocations"
MANY = 100


@functools.cache
def curl_speaks_http2() -> bool:
    if shutil.which("curl") is None:
        return False
    said = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True)
    return "HTTP2" in said.stdout


needs_curl = pytest.mark.skipif(
    not curl_speaks_http2(), reason="curl is not here, or was built without HTTP/2"
)


def curl(*words: str) -> tuple[str, str, str]:
    """The answer's body, the version of HTTP and the status."""
    command = ["curl", "-sS", "--max-time", "30", "-w", "\n%{http_version} %{http_code}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    body, _, last = done.stdout.rpartition("\n")
    version, _, status = last.partition(" ")
    return body, version, status


@pytest.fixture(scope="module")
def echoes(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one model that answers at once and one that takes its time."""
    folder = tmp_path_factory.mktemp("echoes")
    server.deploy("h2-echo", python_model(folder / "echo", ECHO))
    server.deploy("h2-slow", python_model(folder / "slow", SLOW_ECHO))
    yield server
    for name in ("h2-echo", "h2-slow"):
        server.delete(name)


@asynccontextmanager
async def httpx(server: Server) -> AsyncIterator[Any]:
    """A client that knows that the server speaks HTTP/2."""
    async with httpx2.AsyncClient(
        base_url=server.url, http1=False, http2=True, timeout=60
    ) as client:
        yield client


@needs_curl
def test_curl_calls_over_http2_with_prior_knowledge_and_over_http_1_1(echoes: Server) -> None:
    url = echoes.url
    call = ("-H", "content-type: text/plain", "--data-binary", "where", url + ECHOES)
    assert curl("--http2-prior-knowledge", *call) == ("where", "2", "200")
    assert curl("--http1.1", *call) == ("where", "1.1", "200")
    # It asks to change to HTTP/2 by an Upgrade header, which RFC 9113 has given up.
    assert curl("--http2", *call) == ("where", "1.1", "200")
    body, version, status = curl("--http2-prior-knowledge", url + "/endpoints/none/invocations")
    assert (version, status) == ("2", "404"), body
    assert curl("--http2-prior-knowledge", url + "/ping")[1:] == ("2", "200")
    # The control plane is behind the same port.
    listed = curl(
        "--http2-prior-knowledge",
        *("-H", "x-amz-target: SageMaker.ListEndpoints"),
        *("-H", "content-type: application/x-amz-json-1.1", "-d", "{}", url + "/"),
    )
    assert listed[1:] == ("2", "200")
    assert {one["EndpointName"] for one in json.loads(listed[0])["Endpoints"]} >= {"h2-echo"}


@needs_curl
def test_curl_uploads_more_than_a_window_after_it_was_told_to_go_on(
    echoes: Server, tmp_path: Path
) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"x" * 5_000_000)
    answer = tmp_path / "answer"
    said = curl(
        "--http2-prior-knowledge",
        *("-H", "expect: 100-continue", "-H", "content-type: text/plain"),
        *("--data-binary", f"@{body}", "-o", str(answer), echoes.url + ECHOES),
    )
    assert said[1:] == ("2", "200")
    assert answer.read_bytes() == body.read_bytes()
    body.write_bytes(b"x" * 7_000_000)
    too_large = curl("--http2-prior-knowledge", "--data-binary", f"@{body}", echoes.url + ECHOES)
    assert too_large[1:] == ("2", "413")


@needs_curl
def test_curl_chooses_the_version_in_the_handshake(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    echo = python_model(tmp_path / "echo", ECHO)
    flags = ("--tls-cert", str(cert), "--tls-key", str(key), "--deploy", f"h2-echo={echo}")
    with up(tmp_path, *flags) as server:
        wait_until(lambda: "is in service" in server.log(), "in service", 60)
        call = (
            *("--cacert", str(cert), "-H", "content-type: text/plain", "--data-binary", "safe"),
            f"https://localhost:{server.port}{ECHOES}",
        )
        assert curl("--http2", *call) == ("safe", "2", "200")
        assert curl("--http1.1", *call) == ("safe", "1.1", "200")
        assert curl("--no-alpn", *call) == ("safe", "1.1", "200")


async def test_httpx_calls_and_uploads_over_one_connection(echoes: Server) -> None:
    async with httpx(echoes) as client:
        answer = await client.post(ECHOES, content=b"rows", headers={"content-type": "text/csv"})
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
        assert (answer.content, answer.headers["content-type"]) == (b"rows", "text/csv")
        body = bytes(range(256)) * 20_000
        answer = await client.post(ECHOES, content=body, headers={"content-type": BYTES})
        assert (answer.status_code, answer.content == body) == (200, True)
        answer = await client.get("/v2/health/ready")
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
        missing = await client.post("/v2/models/none/infer", content=b"{}")
        assert missing.status_code == 404
        assert "error" in missing.json()


async def test_each_of_a_hundred_streams_gets_its_own_answer(echoes: Server) -> None:
    client = await Http2Client.to(echoes.port)
    about = {"authority": f"127.0.0.1:{echoes.port}"}
    bodies = [b"%d " % n * (1 + n * 40) for n in range(MANY)]
    streams = [client.begin("POST", ECHOES, end=False, **about) for _ in range(MANY)]
    for stream, body in zip(streams, bodies, strict=True):
        await client.upload(stream, body)
    for stream, body in zip(streams, bodies, strict=True):
        got = await client.answer(stream)
        assert (got.status, got.body == body) == (200, True)
    client.close()


async def test_a_completion_streams_over_http2_as_over_http_1_1(
    server: Server, tmp_path: Path
) -> None:
    pytest.importorskip("openvino_genai", reason="the extra `generate` is not installed")
    await asyncio.to_thread(server.deploy, "h2-language", write_model(tmp_path / "model"))
    asked = {"model": "h2-language", "prompt": "Say something", "max_tokens": 16, "stream": True}
    asked["temperature"] = 0
    texts = []
    for version in ({"http1": False, "http2": True}, {"http1": True}):
        async with httpx2.AsyncClient(base_url=server.url, timeout=60, **version) as client:
            pieces = []
            async with client.stream("POST", "/v1/completions", json=asked) as answer:
                assert answer.status_code == 200
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        pieces += [one["text"] for one in json.loads(line[6:])["choices"]]
            assert len(pieces) > 1
            texts.append("".join(pieces))
    assert texts[0] == texts[1] != ""
    await asyncio.to_thread(server.delete, "h2-language")


async def test_streams_that_are_reset_while_the_model_works_leave_nothing(echoes: Server) -> None:
    client = await Http2Client.to(echoes.port)
    about: dict[str, Any] = {"authority": f"127.0.0.1:{echoes.port}"}
    kind = ("content-type", BYTES)
    for _ in range(4):
        streams = [client.begin("POST", SLOW, kind, end=False, **about) for _ in range(20)]
        for stream in streams:
            await client.upload(stream, b"30 " + b"x" * 10_000)
        await asyncio.to_thread(
            wait_until, lambda: echoes.in_flight("h2-slow") == 20, "all are in flight", 20
        )
        for stream in streams:
            client.reset(stream)
        await asyncio.to_thread(
            wait_until, lambda: echoes.in_flight("h2-slow") == 0, "none is in flight", 20
        )
    assert (await client.ask("POST", ECHOES, b"still there", **about)).body == b"still there"
    client.close()
    await asyncio.to_thread(
        wait_until, lambda: echoes.outstanding("h2-slow") == 0, "the copy works on nothing", 60
    )


async def test_a_stop_answers_each_call_or_says_that_it_was_not_taken(tmp_path: Path) -> None:
    slow = python_model(tmp_path / "slow", SLOW_ECHO)
    with up(tmp_path, "--deploy", f"h2-slow={slow}") as server:
        await asyncio.to_thread(
            wait_until, lambda: "is in service" in server.log(), "in service", 60
        )
        client = await Http2Client.to(server.port)
        about = {"authority": f"127.0.0.1:{server.port}"}
        kind = ("content-type", BYTES)
        early = [client.post(SLOW, b"0.3 %d" % n, kind, **about) for n in range(4)]
        await asyncio.to_thread(
            wait_until, lambda: server.in_flight("h2-slow") == 4, "all are in flight", 20
        )
        stopping = asyncio.ensure_future(asyncio.to_thread(server.stop))
        late = []
        while client.last_accepted is None:  # from then on it must begin none
            late.append(client.post(SLOW, b"0 late", kind, **about))
            reading = asyncio.ensure_future(client.read())
            while not (await asyncio.wait((reading,), timeout=0.01))[0]:
                late.append(client.post(SLOW, b"0 late", kind, **about))
        await client.wait_closed()
        assert await stopping == 0
        for n, stream in enumerate(early):
            got = client.answers[stream]
            assert (got.status, got.body) == (200, b"0.3 %d" % n)
        for stream in late:
            got = client.answers[stream]
            taken = stream <= client.last_accepted
            assert (got.ended, got.status in (200, 503)) == (taken, taken), (stream, got)
        assert client.last_accepted == max(early + late)
