"""How a foreign server starts: its paths, its port, and what is said of one that never answers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.environments import python_of
from tests.kit.polling import until

from penstock.artifacts.detection.detect import detect
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext, Payload, PayloadReply, PayloadRuntime
from penstock.runtimes.foreign import server as foreign_server
from penstock.runtimes.foreign.runtime import INVOCATIONS
from penstock.runtimes.foreign.server import ForeignServer, free_port
from penstock.runtimes.loader import load_payload_runtime
from penstock.wire.frames import RequestMeta, encode_request_meta

#: `serve.py ADDRESS PORT READY PREDICT`: answers GET READY and POST PREDICT, all else with 404.
SERVE = """
import http.server, sys
ADDRESS, PORT, READY, PREDICT = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.say(200 if self.path == READY else 404, b"")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.say(200 if self.path == PREDICT else 404, body.upper())
    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer((ADDRESS, int(PORT)), Handler).serve_forever()
"""


class Unheard:
    def lane_lost(self, lane: int, error: PenstockError) -> None: ...
    def lane_ready(self, lane: int) -> None: ...
    def lane_failed(self, lane: int, error: PenstockError) -> None: ...


def context(
    folder: Path, lines: list[str], *, python: str = "", timeout_s: float = 60.0
) -> LoadContext:
    found = detect(folder)
    return LoadContext(
        model_dir=found.root, description=found.description, endpoint_name="e",
        variant_name="v", cores=1.0, memory_bytes_max=0, log=lines.append,
        startup_timeout_s=timeout_s, interpreter=python,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def running(asked: LoadContext) -> AsyncIterator[PayloadRuntime]:
    runtime = await load_payload_runtime(asked, Unheard())
    try:
        yield runtime
    finally:
        await runtime.close()


async def said(runtime: PayloadRuntime, body: bytes) -> PayloadReply:
    done: asyncio.Future[list[PayloadReply]] = asyncio.get_running_loop().create_future()
    meta = encode_request_meta(RequestMeta(content_type="application/json"))
    runtime.invoke(0, [Payload(meta, body)], done.set_result)  # type: ignore[arg-type]
    return (await done)[0]


def server(folder: Path, *, address: str = "127.0.0.1", port: str = "{port}", **keys: str) -> Path:
    ready, predict = keys.pop("ready", "/ping"), keys.pop("answers", INVOCATIONS)
    folder.mkdir(parents=True)
    (folder / "serve.py").write_text(SERVE)
    command = [sys.executable, "serve.py", address, port, ready, predict]
    return model_files.describe(folder, runtime="process", command=command, **keys)


async def test_other_paths_are_named_in_the_description(tmp_path: Path) -> None:
    folder = server(
        tmp_path / "m", ready="/up?all=1", answers="/v1/score", health="/up?all=1",
        predict="/v1/score",
    )  # fmt: skip
    async with running(context(folder, [])) as runtime:
        assert (await said(runtime, b"abc")).body == b"ABC"


async def test_a_path_of_requests_that_is_not_there_is_told_with_its_remedy(tmp_path: Path) -> None:
    async with running(context(server(tmp_path / "m", answers="/score"), [])) as runtime:
        error = (await said(runtime, b"abc")).error
    assert error is not None
    assert "answered 404" in error.message
    assert "predict:" in error.hint


async def test_a_path_of_health_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        async with running(context(server(tmp_path / "m", ready="/up"), [])):
            pass
    assert (caught.value.code, caught.value.message) == (
        "health-refused", "e/v: /ping answered 404",
    )  # fmt: skip
    assert "health: /health" in caught.value.hint


async def test_the_reason_does_not_wait_for_an_end_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever loads it gives up first, and tells no reason."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "serve.py").write_text("import time\ntime.sleep(600)\n")
    model_files.describe(folder, runtime="process", command=[sys.executable, "serve.py"])
    may_end = asyncio.Event()
    ends: list[ForeignServer] = []
    close = ForeignServer.close

    async def closes_late(self: ForeignServer) -> None:
        await may_end.wait()
        await close(self)
        ends.append(self)

    monkeypatch.setattr(ForeignServer, "close", closes_late)
    monkeypatch.setattr(foreign_server, "_END_S_MAX", 0.05)
    with pytest.raises(ModelError, match=r"/ping .* was not 200 within 1 s; nobody listens"):
        async with running(context(folder, [], timeout_s=1.0)):
            pass
    assert ends == []
    may_end.set()
    await until(lambda: ends, "its end", 30)


async def test_a_server_with_a_port_of_its_own_is_told_where_it_listens(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(ModelError) as caught:
        async with running(context(server(tmp_path / "m", port=str(port), ready="/up"), [])):
            pass
    assert caught.value.code == "listens-elsewhere"
    assert f"it listens on 127.0.0.1:{port}, and {{port}} is " in caught.value.message
    assert "{port}" in caught.value.hint


async def test_another_port_beside_the_one_it_was_told_is_only_noted(tmp_path: Path) -> None:
    """A server that loads may already answer elsewhere, with its metrics: it is asked on."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "serve.py").write_text(SERVE)
    (folder / "both.py").write_text(
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, 'serve.py', '127.0.0.1', '0', '/metrics', '/'])\n"
        "while not os.path.exists('noted'): time.sleep(0.02)\n"
        "sys.argv[1:] = ['127.0.0.1', sys.argv[1], '/ping', '/invocations']\n"
        "exec(open('serve.py').read())\n"
    )
    model_files.describe(folder, runtime="process", command=[sys.executable, "both.py", "{port}"])
    lines: list[str] = []

    def heard(line: str) -> None:
        lines.append(line)
        if "it listens on 127.0.0.1:" in line:
            (folder / "noted").touch()

    async with running(replace(context(folder, []), log=heard)) as runtime:
        assert (await said(runtime, b"abc")).body == b"ABC"
    assert lines[0].startswith("GET /ping for ")


async def test_a_start_that_takes_too_long_says_what_was_last_seen(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    model_files.describe(folder, runtime="process", command=command)
    with pytest.raises(ModelError) as caught:
        async with running(context(folder, [], timeout_s=1.0)):
            pass
    assert caught.value.code == "load-timeout"
    assert "nobody listens on port" in caught.value.message


FASTAPI = """
from fastapi import FastAPI
app = FastAPI()
@app.post("/predict")
def predict(x: list[float]):
    return {"sum": sum(x)}
"""
FLASK = """
from flask import Flask, jsonify, request
app = Flask(__name__)
@app.get("/health")
def health():
    return "up"
@app.route("/score", methods=["POST"])
def score():
    return jsonify(sum=sum(request.get_json()))
"""


@pytest.mark.parametrize("code", [FASTAPI, FLASK], ids=["fastapi", "flask"])
async def test_a_folder_of_an_application_is_served_as_it_is(code: str, tmp_path: Path) -> None:
    """By its framework's own server, with the Python of its environment."""
    (tmp_path / "main.py").write_text(code)
    asked = context(tmp_path, [], python=str(python_of("web")))
    assert asked.description.runtime == "process"
    async with running(asked) as runtime:
        assert b'{"sum":6' in (await said(runtime, b"[1, 2, 3]")).body
