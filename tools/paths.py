"""How long the ways of a request are: `python -m tools.paths [CHECKOUT]` counts calls and files.

A server of that checkout (this one, if none is named) and its instances are started with a
profile function in every process. Counted are calls of functions whose code stands in
`src/penstock`, a coroutine that goes on included, in all processes together, per request; what the
same processes do in as long a time without requests is taken off. A file counts where it is called
once in two requests or more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.processes import post, running
from tools.free_port import free_port

ROOT = Path(__file__).resolve().parents[1]
MODELS = 40
WARM = 30
REQUESTS = 500

#: Imported by Python at the start of each process; `{folder}` holds the file that switches it on.
_RECORDER = """
import atexit, collections, json, os, sys, threading, time

folder, source = {folder!r}, {source!r}
calls, on = collections.Counter(), [False]

def profile(frame, event, argument):
    if on[0] and event == "call":
        code = frame.f_code
        if code.co_filename.startswith(source):
            calls[code.co_filename, code.co_qualname] += 1

def watch():
    while True:
        time.sleep(0.005)
        window = folder + "/on"
        if on[0] != os.path.exists(window):
            if on[0]:
                on[0] = False
                rows = [[file[len(source):], name, n] for (file, name), n in calls.items()]
                part = folder + "/" + str(os.getpid())
                with open(part + ".part", "w") as sink:
                    json.dump(rows, sink)
                os.rename(part + ".part", part + ".json")
            else:
                calls.clear()
                on[0] = True
                open(folder + "/" + str(os.getpid()) + ".ready", "w").close()

threading.Thread(target=watch, daemon=True).start()
threading.setprofile(profile)
sys.setprofile(profile)
"""

_CODE = """
def model_fn(model_dir):
    return {number}

def predict_fn(data, model):
    return {{"sum": data["x"] + model}}
"""


class Recorder:
    """Windows of time in which calls are counted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def window(self, act: Callable[[], object]) -> tuple[Counter[tuple[str, str]], float]:
        """What was called while `act` ran, by file and function, and how long that took in s."""
        for old in (*self._folder.glob("*.ready"), *self._folder.glob("*.json")):
            old.unlink()
        (self._folder / "on").touch()
        ready = self._settled("*.ready")
        began = time.monotonic()
        act()
        took_s = time.monotonic() - began
        (self._folder / "on").unlink()
        found: Counter[tuple[str, str]] = Counter()
        self._settled("*.json", of=ready)
        for path in self._folder.glob("*.json"):
            for file, name, count in json.loads(path.read_text()):
                found[file, name] += count
        return found, took_s

    def _settled(self, pattern: str, of: Sequence[Path] = ()) -> list[Path]:
        """The files of all processes: none came for a fifth of a second. `of`: what they said
        before. One that has ended since, as a compiler does when it has nothing to do, says nothing
        more."""
        deadline = time.monotonic() + 30.0
        seen: list[Path] = []
        while time.monotonic() < deadline:
            time.sleep(0.2)
            now = list(self._folder.glob(pattern))
            living = sum(1 for each in of if Path("/proc", each.stem).exists())
            if len(now) == len(seen) >= max(living, 1):
                return now
            seen = now
        raise TimeoutError(f"{self._folder}: only {len(seen)} processes recorded")


@dataclass(frozen=True, slots=True)
class PathLength:
    calls: int
    files: int
    most: tuple[str, ...]  #: called most, with calls a request


def measured(recorder: Recorder, act: Callable[[], object], requests: int) -> PathLength:
    found, took_s = recorder.window(act)
    idle, idle_s = recorder.window(lambda: time.sleep(max(2.0, took_s)))
    for key, count in idle.items():
        found[key] -= round(count * took_s / idle_s)
    calls = sum(count for count in found.values() if count > 0)
    files: Counter[str] = Counter()
    for (file, _), count in found.items():
        files[file] += count
    most = [f"{file}:{name} {n / requests:.1f}" for (file, name), n in found.most_common(12)]
    return PathLength(
        calls=round(calls / requests),
        files=sum(1 for count in files.values() if count >= requests / 2),
        most=tuple(most),
    )


class Calls:
    """A server's endpoints, made and called."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def create(self, name: str, container: dict[str, object]) -> None:
        self._operation("CreateModel", {"ModelName": name, "PrimaryContainer": container})
        variant = {
            "VariantName": "all",
            "ModelName": name,
            "InstanceType": "ml.local.small",
            "InitialInstanceCount": 1,
        }
        self._operation(
            "CreateEndpointConfig", {"EndpointConfigName": name, "ProductionVariants": [variant]}
        )
        self._operation("CreateEndpoint", {"EndpointName": name, "EndpointConfigName": name})
        deadline = time.monotonic() + 90.0
        while True:
            described = self._operation("DescribeEndpoint", {"EndpointName": name})
            if described["EndpointStatus"] == "InService":
                return
            if described["EndpointStatus"] == "Failed" or time.monotonic() > deadline:
                raise RuntimeError(f"{name}: {described}")
            time.sleep(0.1)

    def invoke(self, name: str, body: object, target: str = "") -> None:
        headers = {"Content-Type": "application/json"}
        if target:
            headers["X-Amzn-SageMaker-Target-Model"] = target
        url = f"{self._url}/endpoints/{name}/invocations"
        post(url, json.dumps(body).encode(), timeout_s=60.0, headers=headers)

    def _operation(self, name: str, request: dict[str, object]) -> dict[str, object]:
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"SageMaker.{name}",
        }
        answer = post(self._url, json.dumps(request).encode(), timeout_s=60.0, headers=headers)
        return dict(json.loads(answer))


def target_models(prefix: Path) -> list[str]:
    names = [f"m{number:02}.tar.gz" for number in range(MODELS)]
    for number, name in enumerate(names):
        folder = prefix / "made" / name
        (folder / "code").mkdir(parents=True)
        (folder / "code" / "inference.py").write_text(_CODE.format(number=number))
        shutil.make_archive(str(prefix / name).removesuffix(".tar.gz"), "gztar", folder)
    shutil.rmtree(prefix / "made")
    return names


def paths(checkout: Path, top: Path) -> Iterator[tuple[str, PathLength]]:
    (top / "recorder").mkdir()
    (top / "calls").mkdir()
    source = str(checkout / "src" / "penstock") + "/"
    recorder = _RECORDER.format(folder=str(top / "calls"), source=source)
    (top / "recorder" / "sitecustomize.py").write_text(recorder)
    names = target_models(top / "models")
    port = free_port()
    argv = [sys.executable, "-m", "penstock", "up", "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--grpc-port", "0", "--state-dir", str(top / "state")]
    environment = {
        "PYTHONPATH": f"{top / 'recorder'}:{checkout / 'src'}",
        "PENSTOCK_LISTEN_GATEWAYS": "1",
    }
    with running(argv, env=environment) as server:
        deadline = time.monotonic() + 60.0
        while "penstock ready" not in server.log.read_text():
            if time.monotonic() > deadline or server.ended():
                raise RuntimeError(server.log.read_text())
            time.sleep(0.1)
        calls, recording = Calls(port), Recorder(top / "calls")
        echo = (checkout / "examples" / "echo" / "python").as_uri()
        intent = (checkout / "examples" / "query_intent" / "artifact").as_uri()
        calls.create("echo", {"ModelDataUrl": echo})
        calls.create("intent", {"ModelDataUrl": intent})
        calls.create("many", {"Mode": "MultiModel", "ModelDataUrl": (top / "models").as_uri()})

        def repeat(count: int, endpoint: str, body: object, target: str = "") -> None:
            for _ in range(count):
                calls.invoke(endpoint, body, target)

        for name, endpoint, body, target in (
            ("InvokeEndpoint, a model's own code", "echo", {"x": 1}, ""),
            ("InvokeEndpoint, a row of a compiled encoder", "intent", {"inputs": "red shoes"}, ""),
            ("InvokeEndpoint, TargetModel", "many", {"x": 1}, names[0]),
        ):
            repeat(WARM, endpoint, body, target)
            act = partial(repeat, REQUESTS, endpoint, body, target)
            counted = measured(recording, act, REQUESTS)
            yield name, counted
        cold = names[1:21]

        def load_each() -> None:
            for target in cold:
                calls.invoke("many", {"x": 1}, target)

        counted = measured(recording, load_each, len(cold))
        yield "InvokeEndpoint, TargetModel that is not loaded", counted


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.paths", description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--most", action="store_true", help="print what is called most as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paths-") as folder:
        for name, counted in paths(options.checkout.resolve(), Path(folder)):
            print(f"{name}: {counted.calls} calls in {counted.files} files", flush=True)
            if options.most:
                print(*(f"    {line}" for line in counted.most), sep="\n", flush=True)


if __name__ == "__main__":
    main()
