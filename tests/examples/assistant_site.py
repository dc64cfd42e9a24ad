"""The assistant of the examples on a real server: its services as processes, its index in a folder.

`scripted` puts a writer in the place of the language model that names the first two products of its
prompt, word by word, so that rules about the stream do not hang on what a model says.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kit.python_models import pipeline
from tests.kit.servers import EXAMPLES, Server
from tools.free_port import free_port

ASSISTANT = EXAMPLES / "assistant"
#: The example is a folder of scripts and no package: tests of them import what lies in it.
sys.path[:0] = [str(ASSISTANT), str(ASSISTANT / "pipeline" / "code")]

Event = tuple[str, Any]

_TALK = """
schema: 1
requests_max: 32
steps:
  - name: talk
    python: {function: talk}
    inputs: {messages: $request.messages}
    emit: [{kind: text, data: {text: $piece}}]
"""
_TALK_CODE = """
import re
import time

def talk(messages):
    titles = re.findall(r"^\\[\\d\\] ([^,]+),", messages[0]["content"], re.M)
    asked = messages[-1]["content"]
    if len(titles) < 2:
        yield "There is nothing like it."
        return
    if "endless" in asked:
        while True:
            time.sleep(0.01)
            yield "and on "
    for word in f"Take the {titles[0]} [1]. Or else the {titles[1]} [2] . Bye".split(" "):
        for part in (word[:2], word[2:]):
            if part:
                yield part
        yield " "
"""


def scripted(folder: Path) -> Path:
    """An artifact that answers at chat/completions."""
    return pipeline(folder, _TALK, _TALK_CODE)


class CatalogueService:
    """`service/server.py` as a process, on ports that stay the same when it is started again."""

    def __init__(self) -> None:
        self.port, self.http_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.http_url = f"http://127.0.0.1:{self.http_port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self, *, delay_s: float = 0.0) -> CatalogueService:
        argv = [
            *(sys.executable, str(ASSISTANT / "service" / "server.py")),
            *("--port", str(self.port), "--http-port", str(self.http_port)),
            *("--delay-s", str(delay_s)),
        ]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("catalogue ready"), line
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class AssistantSite:
    """Everything that the assistant needs, deployed."""

    def __init__(self, folder: Path, chat: Path, embed: Path, *, copies: int = 1) -> None:
        self.catalogue = CatalogueService().start()
        self.server = Server(folder / "state").start()
        self.artifact = folder / "pipeline"
        try:
            self._set_up(chat, embed, copies)
        except BaseException:
            self.close()
            raise

    def _set_up(self, chat: Path, embed: Path, copies: int) -> None:
        self.server.deploy("chat", chat)
        self.server.deploy("embed", embed)
        shutil.copytree(
            ASSISTANT / "pipeline",
            self.artifact,
            ignore=shutil.ignore_patterns("index", "__pycache__"),
        )
        index = ("--index", str(self.artifact / "index"), "--url", self.server.url)
        argv = (sys.executable, str(ASSISTANT / "build_index.py"), *index)
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        self.deploy("assistant", copies=copies)

    def deploy(self, name: str, *, copies: int = 1, **environment: str) -> None:
        """The pipeline as an endpoint; `environment` says more of where its services are."""
        environment = {"CATALOGUE": self.catalogue.address, **environment}
        self.server.deploy(name, self.artifact, count=copies, Environment=environment)

    def close(self) -> None:
        self.catalogue.kill()
        assert self.server.stop() == 0, self.server.log()

    def ask(
        self,
        question: str,
        history: list[dict[str, str]] | None = None,
        *,
        endpoint: str = "assistant",
    ) -> list[Event]:
        """The events as boto3's unmodified client streams them."""
        request = {"question": question, "messages": history or []}
        answer = self.server.client("sagemaker-runtime").invoke_endpoint_with_response_stream(
            EndpointName=endpoint, Body=json.dumps(request), ContentType="application/json"
        )
        return list(events_of(part["PayloadPart"]["Bytes"] for part in answer["Body"]))

    def outstanding(self) -> int:
        return self.server.outstanding("assistant", "chat", "embed")


def events_of(parts: Iterator[bytes]) -> Iterator[Event]:
    """Typed server-sent events, as they come."""
    rest = b""
    for part in parts:
        rest += part
        while b"\n\n" in rest:
            block, _, rest = rest.partition(b"\n\n")
            kind, _, data = block.decode().partition("\n")
            yield kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def text_of(events: list[Event]) -> str:
    return "".join(data["text"] for kind, data in events if kind == "text")


def kinds_of(events: list[Event]) -> list[str]:
    """The order of kinds, pieces of one text taken together."""
    kinds: list[str] = []
    for kind, _ in events:
        if kind != "text" or kinds[-1:] != ["text"]:
            kinds.append(kind)
    return kinds
