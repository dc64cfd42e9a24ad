"""The whole support desk with one command: models, platform, a day of traffic, tables, the bill.

    .venv/bin/python examples/support/run.py

makes the models that are not there yet, starts `penstock up` with a state of its own, deploys the
two endpoints, plays the day, measures latency by the length of the text, and reports what each
customer cost beside other ways to serve the same models. Prints tables; OUT has cost.html,
usage.json and result.json. `--quick` is a small one: few small models, a day in seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.request import urlopen

import day
import latency
import make_models
from calls import Answers
from customers import customers
from traffic import AUTOCOMPLETE, EMBEDDINGS

PENSTOCK = (sys.executable, "-m", "penstock")
_START_S_MAX = 120.0
_COUNTED_S_MAX = 30.0
_QUICK = {
    "out": Path("build/support-quick"),
    "customers": 6,
    "autocomplete": 2,
    "calls": 150.0,
    "minutes": 0.05,
    "rounds": 1,
}


def main() -> None:
    given = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell may have left the first one ignored
        signal.signal(number, _as_interrupt)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        _run(given, stack)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], parents=[day.options()]
    )
    parser.add_argument("--out", type=Path, default=Path("build/support"))
    parser.add_argument("--instance-type", default="ml.local.small")
    parser.add_argument("--instances", type=int, default=1, help="of each endpoint")
    parser.add_argument("--rounds", type=int, default=5, help="models of each kind and length")
    parser.add_argument("--quick", action="store_true", help="few small models, a day in seconds")
    # What is given beside it counts.
    if "--quick" in sys.argv:
        parser.set_defaults(**_QUICK)
    return parser.parse_args()


def _run(given: argparse.Namespace, stack: contextlib.ExitStack) -> None:
    say("the models are made")
    make_models.make_all(
        given.out,
        people=given.customers,
        autocomplete_models=given.autocomplete,
        seed=0,
        small=given.quick,
    )
    port = _free_port()
    given.url = f"http://127.0.0.1:{port}"
    say(f"the platform starts at {given.url}")
    state_dir = given.out / ".state"
    # What it has cost begins with this run, and so do its loads.
    shutil.rmtree(state_dir, ignore_errors=True)
    argv = (*PENSTOCK, "up", "--port", str(port), "--grpc-port", str(_free_port()))
    flags = ("--state-dir", str(state_dir), "--log-level", "warning")
    stack.enter_context(_process((*argv, *flags), "ready"))
    endpoints = day.endpoints_of(given)
    for kind in (EMBEDDINGS, AUTOCOMPLETE):
        _penstock(
            "deploy", endpoints[kind], str(given.out / kind), "--multi-model",
            "--instance-type", given.instance_type, "--count", str(given.instances),
            "--url", given.url,
        )  # fmt: skip
    say(f"a day of {given.calls:g} calls is played in {given.minutes:g} minutes")
    answers = Answers()
    took_s = day.play(given, answers)
    if not answers.good():
        sys.exit(f"no call was answered: {answers.failures()}")
    print("\n".join(day.by_hour(answers.good())), flush=True)
    result: dict[str, Any] = {"day": day.figures_of(answers, took_s)}
    result["cost"] = _cost(given, len(answers.good()))
    say("latency by the length of the text")
    people = customers(given.customers)
    result["latency_ms"] = latency.measured(
        given.url, endpoints, people, given.autocomplete, given.rounds
    )
    print("\n".join(latency.table(result["latency_ms"])))
    (given.out / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    for name in ("result.json", "usage.json", "cost.html"):
        say(f"written: {given.out / name}")
    print(json.dumps(result["day"] | {"latency_ms": result["latency_ms"]}), flush=True)


def _cost(given: argparse.Namespace, answered: int) -> dict[str, Any]:
    """Of one moment: the table, the page and the JSON are of the same figures."""
    usage = given.out / "usage.json"
    usage.write_text(json.dumps(_usage(given.url, answered)), encoding="utf-8")
    options = ("--usage", str(usage), "--tenant-parts", "2")
    say("what it cost")
    print(_penstock("cost", *options, "--top", "10"), flush=True)
    _penstock("cost", *options, "--html", str(given.out / "cost.html"))
    found: dict[str, Any] = json.loads(_penstock("cost", *options, "--json"))
    return found


def _usage(url: str, answered: int) -> dict[str, Any]:
    """Once every answer is counted: hosts tell what they counted a second later."""
    deadline = time.monotonic() + _COUNTED_S_MAX
    while True:
        with urlopen(f"{url}/admin/usage", timeout=60) as answer:
            told: dict[str, Any] = json.load(answer)
        models = [model for instance in told["instances"] for model in instance["models"]]
        if sum(m["requests"] for m in models) >= answered or time.monotonic() >= deadline:
            return told
        time.sleep(0.2)


def _penstock(*words: str) -> str:
    """What it prints. Ends the program where it fails."""
    done = subprocess.run((*PENSTOCK, *words), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"penstock {words[0]}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def _process(argv: tuple[str, ...], word: str) -> Iterator[None]:
    """A process of its own group (a Ctrl-C is ours to pass on), from the line with `word` on."""
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        _wait_for(process, word)
        threading.Thread(target=_show, args=(process,), daemon=True).start()
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    said = []
    deadline = time.monotonic() + _START_S_MAX
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if word in line:
            return
        if not line:
            break
        said.append(line)
    sys.exit(f"it did not start: {''.join(said[-5:]).strip()}")


def _show(process: subprocess.Popen[str]) -> None:
    """What a process says later is worth seeing, and an unread pipe would stop it."""
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", file=sys.stderr, flush=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def say(words: str) -> None:
    print(f"-- {words}", flush=True)


if __name__ == "__main__":
    main()
