"""The same small repositories on NVIDIA's server and on ours: the same requests, the same answers?
`make bench NAME=triton_answers`.

NVIDIA's server is the one in nvidia-pytriton, which has the Python backend alone; of ONNX the
answers stand in NVIDIA's documents. Requests come by tritonclient, by its messages of gRPC and as
plain HTTP. Compared are codes and answers; texts of errors are each server's own. A difference that
`bench/triton/differences.py` lists is counted apart from one that nobody has explained.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bench.report import finish, versions_in
from bench.triton.calls import CALLS
from bench.triton.cases import Case
from bench.triton.configs import CONFIGS
from bench.triton.differences import DIFFERENCES
from bench.triton.documents import DOCUMENTED
from bench.triton.models import MODELS
from bench.triton.protocol import PROTOCOL
from bench.triton.rows import LISTED, SAME, UNLISTED, Row, judge
from bench.triton.servers import LOADED, Asker, Outcome, Side, nvidia, ours, write
from bench.triton.values import VALUES

CASES: tuple[Case, ...] = (*MODELS, *VALUES, *CALLS, *CONFIGS, *PROTOCOL, *DOCUMENTED)
DIED = ["the server died", ""]
Starts = Callable[[], contextlib.AbstractContextManager[Side]]


def names(case: Case) -> list[str]:
    """Of its rows: whether it loads, then each ask."""
    return [f"{case.name}: load", *(f"{case.name}: {a.label} ({a.door})" for a in case.asks)]


def answers(cases: Sequence[Case], root: Path, start: Starts) -> Iterator[list[Outcome]]:
    """What a side answers, case by case. It is started again only after it died."""
    with contextlib.ExitStack() as stack:
        asker = stack.enter_context(Asker())
        up = stack.enter_context(contextlib.ExitStack())
        side = _started(up, start)
        for case in cases:
            if side is None:
                yield [["not started", ""]] * len(names(case))
                continue
            try:
                yield _of(case, root, side, asker)
            except OSError as error:
                yield [[f"failed: {error}"[:200], ""]] * len(names(case))
            if not side.lives():
                up.close()
                side = _started(up, start)


def _started(up: contextlib.ExitStack, start: Starts) -> Side | None:
    try:
        return up.enter_context(start())
    except (OSError, RuntimeError) as error:
        print(f"a server did not start: {error}", flush=True)
        return None


def _of(case: Case, root: Path, side: Side, asker: Asker) -> list[Outcome]:
    found: list[Outcome] = [[side.load(case, root / case.name), ""]]
    loaded = found[0][0] == LOADED
    for ask in case.asks if loaded else ():
        found.append(asker.ask(side.addresses.put(ask, case.name)))
        if not side.lives():
            found[-1] = DIED
            break
    found += [found[-1] if found[-1] is DIED else ["not loaded", ""]] * (
        len(names(case)) - len(found)
    )
    if side.lives():
        side.unload(case)
    return found


def documented(case: Case) -> list[Outcome]:
    """What NVIDIA's pages say: that it loads, and what is answered."""
    said = [ask.documented for ask in case.asks]
    return [[LOADED, ""], *(each[0] for each in said if each is not None)]


def compare(cases: Sequence[Case]) -> list[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "repositories")
        for case in cases:
            write(case, root)
        asked = [case for case in cases if not case.documented]
        found = iter(list(answers(asked, root, lambda: nvidia(root, Path(scratch)))))
        theirs = [documented(case) if case.documented else next(found) for case in cases]
        our = list(answers(cases, root, ours))
    rows = []
    for case, their_answers, our_answers in zip(cases, theirs, our, strict=True):
        views = ["", *(each.view for each in case.asks)]
        rows += [
            Row(*each) for each in zip(names(case), their_answers, our_answers, views, strict=True)
        ]
    return rows


def shown(outcome: Any) -> str:
    return json.dumps(outcome, ensure_ascii=False)[:400]


def _release(judged: Sequence[tuple[Row, str, Any]]) -> dict[str, str]:
    """NVIDIA's server's own version, which it tells where it is asked about itself."""
    told = [row.theirs[1] for row, *_ in judged if row.name == "server: about itself (http)"]
    return {"tritonserver": str(told[0]["version"])} if told and isinstance(told[0], dict) else {}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench triton_answers")
    parser.add_argument("--case", action="append", help="only these; a pattern, may be given again")
    options = parser.parse_args(arguments)
    wanted = options.case or ["*"]
    cases = [case for case in CASES if any(fnmatchcase(case.name, each) for each in wanted)]
    judged = judge(compare(cases), DIFFERENCES)
    for row, verdict, by in judged:
        if verdict is not SAME:
            print(f"{verdict} {row.name}\n  NVIDIA {shown(row.theirs)}\n  ours   {shown(row.ours)}")
            if by is not None:
                print(f"  {by.what}: {by.why}")
    counts = Counter(verdict for _, verdict, _ in judged)
    for one in DIFFERENCES if len(cases) == len(CASES) else ():
        if not any(by is one for _, _, by in judged):
            print(f"listed, and no longer so: {one.what}")
    finish(
        "triton_answers",
        {"same": counts[SAME], "differ_listed": counts[LISTED], "differ_unlisted": counts[UNLISTED],
         "repositories": len(cases), "rows": len(judged)},
        versions={
            **_release(judged),
            **versions_in("pytriton", "nvidia-pytriton", "numpy"),
            **versions_in("client-tritonclient", "tritonclient", "grpcio"),
        },
    )  # fmt: skip
