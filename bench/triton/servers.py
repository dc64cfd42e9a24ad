"""NVIDIA's server and ours with the same repositories, and what both answer.

A side is started once. One that dies is started again, and the row says that it died; a model that
does not load is a row of its own. Nothing here waits without a bound.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tools.environments import make
from tools.free_port import free_port

from bench.processes import Running, penstock_up, running, wait_answer
from bench.triton.cases import HEAD, Ask, Case

ASKER = Path(__file__).parents[1] / "peers" / "triton_asker.py"
LOAD_S_MAX = 40.0
ASKER_S_MAX = 30.0  #: more than an ask takes at most
LOADED, REFUSED = "loaded", "refused"
FORWARDED = "x-tenant"
CACHE_BYTES = 16 << 20
#: The model that NVIDIA's server answers with at SageMaker's door: it has one.
SAGEMAKER = "sagemaker"
Outcome = list[Any]  #: [code, answer]


def write(case: Case, root: Path) -> Path:
    """The case's repository, in a folder of its own."""
    place = root / case.name
    _write_model(place / case.name, case.config, case.code, case.backend)
    for name, (config, code) in case.others.items():
        _write_model(place / name, config, code, "python")
    for path, content in case.files.items():
        file = place / case.name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return place


def _write_model(folder: Path, config: str | None, code: str | None, backend: str) -> None:
    folder.mkdir(parents=True)
    if config is not None:
        named = "" if "platform:" in config else f'backend: "{backend}" '
        (folder / "config.pbtxt").write_text(named + config)
    if code is not None:
        (folder / "1").mkdir()
        (folder / "1" / "model.py").write_text(HEAD + code)
    elif config is not None and "ensemble_scheduling" in config:
        (folder / "1").mkdir()


class Asker:
    """The process that asks, in the environment of NVIDIA's clients."""

    def __init__(self) -> None:
        self._python = make("client-tritonclient")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, what: dict[str, Any]) -> Outcome:
        if self._process is None:
            self._process = subprocess.Popen(
                [str(self._python), str(ASKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], ASKER_S_MAX)[0]:
            self._end()
            return ["no answer", ""]
        line = self._process.stdout.readline()
        if not line:
            self._end()
            return ["the client died", ""]
        outcome: Outcome = json.loads(line)
        return outcome

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a side listens."""

    http: str
    grpc: str
    sagemaker: str  #: of InvokeEndpoint, with {} for the model's name

    def put(self, ask: Ask | dict[str, Any], model: str) -> dict[str, Any]:
        """An ask with the addresses and the model's name in it."""
        made = {**ask.what, "door": ask.door} if isinstance(ask, Ask) else dict(ask)
        made |= {"base": self.http, "grpc": self.grpc, "model": model}
        if "asks" in made:
            made["asks"] = [self.put(each, model) for each in made["asks"]]
        if made["door"] == "http":
            made["url"] = self._url(made["path"], model)
        if made["door"] == "grpc" and "Infer" in made["call"]:
            one = made["request"]
            named = {"model_name": model}
            made["request"] = (
                [{**named, **each} for each in one] if isinstance(one, list) else {**named, **one}
            )
        return made

    def _url(self, path: str, model: str) -> str:
        if path == "invocations":
            return self.sagemaker.format(model)
        below = path if path.startswith("/") else f"/models/{model}/{path}"
        return f"{self.http}/v2{below}".rstrip("/")


class Side(Protocol):
    """A server that is up."""

    addresses: Addresses

    def load(self, case: Case, folder: Path) -> str: ...
    def unload(self, case: Case) -> None: ...
    def lives(self) -> bool: ...


class Nvidia:
    """The server in nvidia-pytriton; models are loaded and unloaded while it runs."""

    def __init__(self, addresses: Addresses, server: Running) -> None:
        self.addresses = addresses
        self._server = server

    def load(self, case: Case, folder: Path) -> str:
        for name in case.others:  # models that its code calls are not loaded by themselves
            self.model(name, "load")
        return self.model(case.name, "load")

    def unload(self, case: Case) -> None:
        for name in (case.name, *case.others):
            self.model(name, "unload")

    def lives(self) -> bool:
        return not self._server.ended()

    @property
    def pid(self) -> int:
        return self._server.pid

    def model(self, name: str, action: str) -> str:
        """`action`: load or unload."""
        url = f"{self.addresses.http}/v2/repository/models/{name}/{action}"
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, b"{}"), timeout=LOAD_S_MAX
            ) as answer:
                answer.read()
        except urllib.error.HTTPError:
            return REFUSED
        except OSError as error:
            return f"failed: {error}"
        return LOADED


@contextlib.contextmanager
def nvidia(root: Path, folder: Path) -> Iterator[Nvidia]:
    """Its server over the repositories below `root`, which all have to be there."""
    python = make("pytriton")
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    server = packages / "pytriton" / "tritonserver"
    backends = folder / "backends"
    if not backends.exists():
        shutil.copytree(server / "backends", backends)
        version = packages.parent.name.removeprefix("python")
        stubs = server / "python_backend_stubs" / version
        shutil.copytree(stubs, backends / "python", dirs_exist_ok=True)
    http, grpc, sagemaker = free_port(), free_port(), free_port()
    argv = [
        str(server / "bin" / "tritonserver"), f"--backend-directory={backends}",
        "--http-address=127.0.0.1", f"--http-port={http}", "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc}", "--allow-metrics=false", "--model-control-mode=explicit",
        f"--http-header-forward-pattern={FORWARDED}", f"--grpc-header-forward-pattern={FORWARDED}",
        f"--cache-directory={server / 'caches'}", f"--cache-config=local,size={CACHE_BYTES}",
        "--allow-sagemaker=true", f"--sagemaker-port={sagemaker}", "--exit-timeout-secs=5",
        "--strict-readiness=false",  # models that are meant to fail are beside the others
        *(f"--model-repository={each}" for each in sorted(root.iterdir())),
    ]  # fmt: skip
    environment = {
        "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
        "PATH": f"{python.parent}:{os.environ['PATH']}",  # by which the stub finds its packages
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": SAGEMAKER,
    }
    with contextlib.suppress(RuntimeError), running(argv, env=environment) as process:
        base = f"http://127.0.0.1:{http}"
        wait_answer(f"{base}/v2/repository/index", b"{}", timeout_s=120.0)
        invoke = f"http://127.0.0.1:{sagemaker}/invocations"
        yield Nvidia(Addresses(base, f"127.0.0.1:{grpc}", invoke), process)


class Ours:
    """Penstock; each case is an endpoint for as long as it is asked."""

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses

    def load(self, case: Case, folder: Path) -> str:
        named = f"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME={case.name}"
        return self._penstock("deploy", case.name, str(folder), "--env", named)

    def unload(self, case: Case) -> None:
        self._penstock("delete", case.name, "--yes")

    def lives(self) -> bool:
        return True  # `penstock up` starts anew what dies below it

    def _penstock(self, *words: str) -> str:
        argv = [sys.executable, "-m", "penstock", *words, "--url", self.addresses.http]
        try:
            run = subprocess.run(argv, capture_output=True, timeout=LOAD_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            return "not loaded in time"
        return LOADED if run.returncode == 0 else REFUSED


@contextlib.contextmanager
def ours() -> Iterator[Ours]:
    settings = {
        "PENSTOCK_LISTEN_FORWARD_HEADERS": FORWARDED,
        "PENSTOCK_LISTEN_CLIENT_SHARED_MEMORY": "true",
        "PENSTOCK_CONTROL_RESPONSE_CACHE_BYTES_MAX": str(CACHE_BYTES),
    }
    port = free_port()
    with penstock_up(settings=settings, grpc_port=port) as base:
        yield Ours(Addresses(base, f"127.0.0.1:{port}", f"{base}/endpoints/{{}}/invocations"))
