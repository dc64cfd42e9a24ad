"""Asynchronous endpoints for system tests: made, asked, and their objects read."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.kit.http_servers import Reply, SeenRequest, answering
from tests.kit.python_models import python_model
from tests.kit.servers import Server

#: Answers depend on the request alone, and take a moment.
SQUARES = """
import time
def model_fn(model_dir): return None
def predict_fn(data, model):
    time.sleep(data.get("seconds", 0.005))
    return {"squared": data["number"] ** 2, "padding": "x" * data.get("padding", 0)}
"""


class AsyncSite:
    """One server with a folder for inputs, outputs and failures."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.out, self.bad = folder / "out", folder / "bad"

    def model(self, name: str = "squares", code: str = SQUARES) -> None:
        self.server.model(name, python_model(self.folder / name, code))

    def endpoint(
        self, name: str, *, model: str = "squares", wait: bool = True, count: int = 1, **more: Any
    ) -> None:
        """`more`: members of AsyncInferenceConfig, and of its OutputConfig below `output`."""
        output = {"S3OutputPath": self.out.as_uri(), "S3FailurePath": self.bad.as_uri()}
        output |= more.pop("output", {})
        self.server.endpoint(
            name, wait=wait, ModelName=model, InitialInstanceCount=count,
            members={"AsyncInferenceConfig": {"OutputConfig": output} | more},
        )  # fmt: skip

    def ask(self, endpoint: str, body: dict[str, Any], name: str, **headers: str) -> bool:
        """Whether it was accepted: told so, and not cut off before."""
        told = {
            "X-Amzn-SageMaker-Content-Type": "application/json",
            "X-Amzn-SageMaker-Filename": name,
        }
        told |= {f"X-Amzn-SageMaker-{key}": value for key, value in headers.items()}
        path = f"/endpoints/{endpoint}/async-invocations"
        try:
            status, _ = self.server.post(path, json.dumps(body).encode(), told)
        except (urllib.error.URLError, HTTPException, OSError):
            return False
        return status == 202

    def answers(self, folder: str = "") -> dict[str, bytes]:
        """What is there of outputs, by name; what is being written has no such name."""
        place = self.out / folder
        found = place.iterdir() if place.is_dir() else ()
        return {one.name: one.read_bytes() for one in found if one.is_file() and one.name[0] != "."}

    def failures(self) -> dict[str, dict[str, Any]]:
        """What is there of failure objects, by name."""
        found = sorted(self.bad.rglob("*")) if self.bad.is_dir() else []
        whole = [one for one in found if one.is_file() and one.name[0] != "."]
        return {one.name: json.loads(one.read_bytes()) for one in whole}


class Subscriber:
    """A webhook: `posts` is what came; it answers with the statuses in `answers`, then 200."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.posts: list[tuple[dict[str, str], dict[str, Any]]] = []  #: headers, body
        self.answers: list[int] = []


@contextmanager
def subscriber() -> Iterator[Subscriber]:
    told = Subscriber("")

    def answer(seen: SeenRequest) -> Reply:
        told.posts.append((seen.headers, json.loads(seen.body)))
        status = told.answers.pop(0) if told.answers else 200
        return status, {"Location": f"{told.url}/elsewhere"} if status == 302 else {}, b""

    with answering(answer) as url:
        told.url = f"{url}/told"
        yield told
