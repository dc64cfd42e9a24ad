"""A model server by the container contract for several models: `python multi_model_server.py PORT
[ADDRESS]`.

Holds at most MODELS_MAX models, and answers 507 for one more. A model is the file `weights` of its
folder; its answer to a request says which it is. Bodies that begin with "!" make it do harm.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

MODELS_MAX = int(os.environ.get("MODELS_MAX", "2"))
PAGE = 2  #: models in a page of the list
LOCK = threading.Lock()
NOT_FOUND: list[str] = []  #: a model's own answers of that kind
MODELS: dict[str, tuple[str, str]] = {}  #: name -> url, weights


def listed(name: str) -> dict[str, str]:
    return {"modelName": name, "modelUrl": MODELS[name][0]}


def hang() -> None:
    LOCK.release()
    time.sleep(3600)


def load(wanted: dict[str, str]) -> tuple[int, Any]:
    name, url = wanted["model_name"], wanted["url"]
    if name in MODELS:
        return 409, {}
    weights = Path(url, "weights")
    if not weights.is_file():
        return 400, {"why": "it has no file weights"}
    if weights.read_text() == "!slow":
        hang()
    if weights.read_text().startswith("!gate "):
        print("loads now", flush=True)
        while not Path(weights.read_text().split()[1]).exists():
            time.sleep(0.01)
    if len(MODELS) >= MODELS_MAX:
        return 507, {}
    MODELS[name] = url, weights.read_text()
    return 200, {}


def page(token: str) -> dict[str, Any]:
    names = sorted(MODELS)
    start = int(token or 0)
    told: dict[str, Any] = {"models": [listed(name) for name in names[start : start + PAGE]]}
    if start + PAGE < len(names):
        told["nextPageToken"] = str(start + PAGE)
    return told


def invoke(name: str, body: str, target: str) -> tuple[int, Any]:
    if name not in MODELS:
        return 404, {}
    if body == "!die":
        os._exit(3)
    if body == "!hang":
        hang()
    if body == "!forget":
        del MODELS[name]
    if body == "!not found":
        NOT_FOUND.append(name)
        return 404, {"own": len(NOT_FOUND)}
    if body == "!full" and len(MODELS) >= MODELS_MAX:
        return 507, {}
    return 200, {"weights": MODELS.get(name, ("", ""))[1], "target": target, "body": body,
                 "multi_model": os.environ["SAGEMAKER_MULTI_MODEL"]}  # fmt: skip


class MultiModelHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _do(self) -> tuple[int, Any]:
        place = urlsplit(self.path)
        parts = place.path.strip("/").split("/")
        body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        if parts == ["ping"]:
            return 200, {}
        if parts == ["models"]:
            if self.command == "POST":
                return load(json.loads(body))
            return 200, page(parse_qs(place.query).get("next_page_token", [""])[0])
        if len(parts) == 3:
            return invoke(parts[1], body, self.headers["x-amzn-sagemaker-target-model"])
        if parts[1] not in MODELS:
            return 404, {}
        if self.command == "DELETE":
            return 200, {"gone": MODELS.pop(parts[1])}
        return 200, listed(parts[1])

    def _answer(self) -> None:
        with LOCK:
            status, told = self._do()
        data = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    host = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    ThreadingHTTPServer((host, int(sys.argv[1])), MultiModelHandler).serve_forever()
