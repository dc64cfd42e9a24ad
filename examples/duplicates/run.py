"""Finds the duplicates of a shop with one command: offers, candidates, a job, groups, a page.

    .venv/bin/python examples/duplicates/run.py

makes a shop's offers and the candidate pairs among them, starts `penstock up` with a state of its
own, asks the model about all pairs in a transform job (`penstock transform`), joins what it is sure
of, and prints how right the groups are. OUT has pairs/, answers/, groups.jsonl and report.html.

With `--schedule` nobody begins the job: a schedule does, when it is due, and the command waits for
it. With `--url` a server that runs already is asked.
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
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "query_intent"))  # whose words the titles are made of

import candidates  # noqa: E402
import clusters  # noqa: E402
import page  # noqa: E402
import shop  # noqa: E402

PENSTOCK = (sys.executable, "-m", "penstock")
SCHEDULE = "duplicates"
_START_S_MAX = 120.0
#: Until the schedule's job is due: the server is told of it in less.
_DUE_IN_S = 10.0
_BEGUN_S_MAX = 120.0


def main() -> None:
    given = _arguments()
    signal.signal(signal.SIGTERM, _as_interrupt)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        _run(given, stack)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--products", type=int, default=1000)
    parser.add_argument("--neighbours", type=int, default=candidates.NEIGHBOURS, metavar="N",
                        help="candidates that each offer brings")  # fmt: skip
    parser.add_argument("--threshold", type=float, default=clusters.THRESHOLD)
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--instance-type", default="ml.local.small")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--schedule", action="store_true", help="have a schedule begin the job")
    parser.add_argument("--url", default="", help="a server that runs already")
    parser.add_argument("--out", type=Path, default=Path("build/duplicates"))
    return parser.parse_args()


def _run(given: argparse.Namespace, stack: contextlib.ExitStack) -> None:
    say(f"{given.products:,} products are offered")
    offers = shop.make_offers(given.products, given.seed)
    true = shop.true_pairs(offers)
    pairs = candidates.candidates([offer.title for offer in offers], given.neighbours)
    blocking = clusters.judged(set(pairs), true)
    say(
        f"{len(offers):,} offers make {len(offers) * (len(offers) - 1) // 2:,} pairs; "
        f"{len(pairs):,} are candidates, with {blocking.recall:.2%} of the true ones"
    )
    for name in ("pairs", "answers"):
        shutil.rmtree(given.out / name, ignore_errors=True)
    write_pairs(given.out / "pairs" / "pairs.jsonl", offers, pairs)
    url = given.url or _server(given, stack)
    job = _scheduled(given, url) if given.schedule else _asked(given, url)
    scores = read_scores(given.out / "answers" / "pairs.jsonl.out")
    groups = clusters.groups_of(len(offers), pairs, scores, given.threshold)
    found = clusters.judged(clusters.pairs_within(groups), true)
    _write_groups(given.out / "groups.jsonl", offers, groups)
    told = page.Report(
        offers=offers, pairs=pairs, scores=scores, groups=groups, threshold=given.threshold,
        blocking=blocking, clusters=found, job=job["TransformJobName"],
        job_s=job["TransformEndTime"] - job["TransformStartTime"],
        cost=(job.get("PenstockProgress") or {}).get("CostSoFar") or 0.0,
    )  # fmt: skip
    (given.out / "report.html").write_text(page.page(told), encoding="utf-8")
    say(f"{len(groups):,} groups; see {given.out / 'report.html'}")
    result = {
        "offers": len(offers),
        "pairs": len(pairs),
        "blocking_recall": round(blocking.recall, 4),
        "groups": len(groups),
        "precision": round(found.precision, 4),
        "recall": round(found.recall, 4),
        "job_s": round(told.job_s, 1),
        "pairs_per_s": round(len(pairs) / max(told.job_s, 1e-9), 1),
        "cost": round(told.cost, 6),
    }
    print(json.dumps(result), flush=True)


def write_pairs(path: Path, offers: Sequence[shop.Offer], pairs: Sequence[tuple[int, int]]) -> None:
    """As the model reads them, a pair a line. Answers are in the same order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as lines:
        for one, other in pairs:
            record = {"text": offers[one].title, "text_pair": offers[other].title}
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")


def read_scores(path: Path) -> list[float]:
    """Of each answer, how sure it is of a duplicate."""
    with path.open(encoding="utf-8") as lines:
        return [clusters.sureness(json.loads(line)) for line in lines]


def _write_groups(
    path: Path, offers: Sequence[shop.Offer], groups: Sequence[Sequence[int]]
) -> None:
    with path.open("w", encoding="utf-8") as lines:
        for group in groups:
            members = [{"offer": at, "title": offers[at].title} for at in group]
            lines.write(json.dumps(members, ensure_ascii=False) + "\n")


def _asked(given: argparse.Namespace, url: str) -> dict[str, Any]:
    """The job that this command begins, once it has ended."""
    name = f"duplicates-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    say(f"job {name} asks the model about every pair")
    told = _penstock(
        "transform", str(HERE / "artifact"), str(given.out / "pairs"), str(given.out / "answers"),
        "--name", name, "--json", *_capacity(given), "--url", url, shown=True,
    )  # fmt: skip
    described: dict[str, Any] = json.loads(told)
    return described


def _scheduled(given: argparse.Namespace, url: str) -> dict[str, Any]:
    """The job that the schedule begins, once it has ended."""
    due = datetime.now(UTC) + timedelta(seconds=_DUE_IN_S)
    _penstock(
        "schedule", "create", SCHEDULE, str(HERE / "artifact"), str(given.out / "pairs"),
        str(given.out / "answers"), "--at", f"{due:%Y-%m-%dT%H:%M:%S}", *_capacity(given),
        "--url", url, shown=True,
    )  # fmt: skip
    say("nothing runs, and nothing is paid, until the schedule is due")
    deadline = time.monotonic() + _BEGUN_S_MAX
    while not (runs := _schedule(url)["runs"]):
        if time.monotonic() >= deadline:
            sys.exit("the schedule began nothing")
        time.sleep(0.2)
    say(f"job {runs[0]['job']} began by itself ({runs[0]['reason']})")
    job = _followed(runs[0]["job"], url)
    _penstock("schedule", "delete", SCHEDULE, "--url", url)
    return job


def _schedule(url: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        _penstock("schedule", "show", SCHEDULE, "--json", "--url", url)
    )
    return told


def _followed(job: str, url: str) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(
        _penstock("jobs", "follow", job, "--json", "--url", url, shown=True)
    )
    return described


def _capacity(given: argparse.Namespace) -> tuple[str, ...]:
    return "--instance-type", given.instance_type, "--count", str(given.instances)


def _penstock(*words: str, shown: bool = False) -> str:
    """What it prints. Ends the program where it fails. `shown`: what it says is for the user."""
    told = None if shown else subprocess.PIPE
    done = subprocess.run(
        (*PENSTOCK, *words), stdout=subprocess.PIPE, stderr=told, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"penstock {words[0]} failed: {(done.stderr or '').strip()}")
    return done.stdout


def _server(given: argparse.Namespace, stack: contextlib.ExitStack) -> str:
    """The address of one that ends with this program."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    say(f"the platform starts at {url}")
    shutil.rmtree(given.out / ".state", ignore_errors=True)
    argv = (*PENSTOCK, "up", "--port", str(port), "--grpc-port", str(_free_port()))
    flags = ("--state-dir", str(given.out / ".state"), "--log-level", "warning")
    stack.enter_context(_process((*argv, *flags), given.out / "server.log"))
    return url


@contextlib.contextmanager
def _process(argv: tuple[str, ...], log: Path) -> Iterator[None]:
    """A server of its own group (a Ctrl-C is ours to pass on), from when it is ready."""
    with log.open("wb") as said:
        process = subprocess.Popen(argv, stdout=said, stderr=said, start_new_session=True)
    try:
        deadline = time.monotonic() + _START_S_MAX
        while b"ready" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() >= deadline:
                sys.exit(f"it did not start: see {log}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
