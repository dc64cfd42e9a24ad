"""1,000,000 product pairs through transform jobs of a real server.

Beside the bare compiled model over rows that are tokenized, sorted and padded beforehand; beside a
plain PyTorch loop over a DataLoader, batches sorted by length; and beside Ray Data's map_batches
with the same compiled model. Each peer has its best settings, which are swept first and printed.
Ours and the bare model take turns, as the machine is not always equally fast, and jobs are timed
from CreateTransformJob on: reading, decoding, tokenizing, writing, and the start of the instance
are in. PyTorch and Ray Data run over fewer rows: PyTorch from pairs to answers in memory, Ray Data
from file to file, the start of its actors taken out by the difference of two sizes.

    --pairs N    1,000,000
    --turns N    jobs, each over its share of the pairs, with a run of the bare model after each
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from bench.arithmetic import median_ratio, ratios
from bench.machine import OthersLoad, foreground
from bench.processes import penstock_process
from bench.report import finish, spread, versions, versions_in
from bench.transform_data import CACHE, pairs_file
from bench.transform_job import Ran, Site
from bench.transform_peers import (
    PEERS,
    Answers,
    Peer,
    bare_settings,
    compared_with_ray,
    compared_with_torch,
    made_model,
    peer,
    shares,
    swept,
)

INSTANCE_TYPE = "ml.local.machine"
BARE_ROWS = 60_000  #: of a run of the bare model, before and after each job
#: Largest difference of a probability beside the bare model's, whose batches are others; where it
#: differs more from itself, twice that. A padded row is summed in another order, and INT8 rounds.
DIFFERENCE_MAX = 0.01
PADDED_ROWS = 200  #: so few that those of a batch differ in length


def folders_of(pairs: int, turns: int) -> list[Path]:
    """One folder for each turn, with its share of the pairs in one object."""
    whole = pairs_file(pairs)
    folders = [CACHE / f"shares-{pairs}-{turns}" / str(turn) for turn in range(turns)]
    with whole.open("rb") as lines:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "pairs.jsonl").open("wb") as share:
                share.writelines(itertools.islice(lines, pairs // turns))
    return folders


def allowed_difference(bare: Peer, file: Path, setting: dict[str, Any]) -> float:
    """From the job's answers: batches of another size pad the same rows otherwise."""
    runs: list[Answers] = [
        bare.ask(file=str(file), skip=0, count=PADDED_ROWS, **setting | {"rows": rows})["answers"]
        for rows in (1, 8, 64)
    ]
    own = max(
        abs(max(shares(one)) - max(shares(other)))
        for padded in runs[1:]
        for mine, theirs in zip(runs[0], padded, strict=True)
        for one, other in zip(mine, theirs, strict=True)
    )
    print(f"the bare model's answers differ by {own:.2g} with the padding", flush=True)
    return max(DIFFERENCE_MAX, 2 * own)


def check_outputs(out: Path, records: int, answers: Answers, allowed: float) -> None:
    """A line for each record, and in the first ones the bare model's answers."""
    with (out / "pairs.jsonl.out").open("rb") as lines:
        first = [json.loads(line) for line in itertools.islice(lines, len(answers))]
        count = len(first) + sum(1 for _ in lines)
    if count != records:
        raise RuntimeError(f"the output has {count} lines for {records} records")
    for line, bare in zip(first, answers, strict=True):
        for head, logits in zip(line.values(), bare, strict=True):
            difference = abs(head["score"] - max(shares(logits)))
            if difference > allowed:
                raise RuntimeError(f"an answer differs by {difference} from the bare model's")


class Turns:
    """Jobs and the bare model, one after the other."""

    def __init__(self, bare: Peer, site: Site, setting: dict[str, Any], allowed: float) -> None:
        self._bare = bare
        self._allowed = allowed
        self._site = site
        self._setting = setting
        self.jobs: list[Ran] = []
        self.bare_rates: list[float] = []
        self.answers: Answers = []  #: to the first pairs of all

    def take(self, folder: Path, records: int) -> None:
        file, count = str(folder / "pairs.jsonl"), min(records, BARE_ROWS)
        before = self._bare.ask(file=file, skip=0, count=count, **self._setting)
        out = CACHE / "out" / folder.name
        shutil.rmtree(out, ignore_errors=True)
        job = self._site.job("pairs", folder, out, records=records)
        check_outputs(out, records, before["answers"], self._allowed)
        after = self._bare.ask(file=file, skip=0, count=count, **self._setting)
        self.jobs.append(job)
        self.bare_rates.append(2 * count / (before["s"] + after["s"]))
        self.answers = self.answers or before["answers"]
        print(
            f"bare {self.bare_rates[-1]:.0f} rows/s, job {job.rate:.0f} in {job.wall_s:.1f} s, "
            f"{job.running_rate:.0f} once it ran; memory "
            + ", ".join(f"{share:.0%} {b >> 20} MiB" for share, b in job.memory.items()),
            flush=True,
        )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench transform")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--without", nargs="*", default=[], choices=("torch", "ray"))
    arguments = parser.parse_args(argv)
    CACHE.mkdir(parents=True, exist_ok=True)
    alone = foreground()
    model = made_model()
    folders = folders_of(arguments.pairs, arguments.turns)
    first = folders[0] / "pairs.jsonl"
    argv_bare = [sys.executable, str(PEERS / "transform_bare.py"), str(model / "artifact")]
    with OthersLoad() as others:
        with peer("bare", argv_bare) as bare, penstock_process() as (url, pid):
            setting = swept("bare", bare, first, bare_settings())
            site = Site(url, pid, INSTANCE_TYPE)
            site.model("pairs", model / "artifact")
            allowed = allowed_difference(bare, first, setting)
            turns = Turns(bare, site, setting, allowed)
            for folder in folders:
                turns.take(folder, arguments.pairs // arguments.turns)
        rates = [job.rate for job in turns.jobs]
        running = [job.running_rate for job in turns.jobs]
        ours = spread(rates)["median"]
        figures: dict[str, Any] = {
            "transform_ratio": round(median_ratio(rates, turns.bare_rates), 4),
            "transform_ratio_running": round(median_ratio(running, turns.bare_rates), 4),
            "rows_per_s": spread(rates),
        }
        peers: dict[str, Any] = {}
        if "torch" not in arguments.without:
            theirs, peers["pytorch_setting"] = compared_with_torch(model, first, turns.answers)
            peers["pytorch_rows_per_s"] = spread(theirs)
            figures["vs_pytorch"] = round(ours / spread(theirs)["median"], 3)
        if "ray" not in arguments.without:
            theirs, peers["ray_data_setting"] = compared_with_ray(model)
            peers["ray_data_rows_per_s"] = spread(theirs)
            figures["vs_ray_data"] = round(ours / spread(theirs)["median"], 3)
    finish(
        "transform",
        figures,
        pairs=arguments.pairs,
        ratios=[round(each, 4) for each in ratios(rates, turns.bare_rates)],
        bare_rows_per_s=spread(turns.bare_rates),
        bare_setting=setting,
        memory_mib={f"{share:.0%}": b >> 20 for share, b in turns.jobs[-1].memory.items()},
        **peers,
        model=json.loads((model / "facts.json").read_text()),
        foreground=alone,
        others_cores=round(others.cores, 3),
        versions=versions("openvino", "tokenizers", "numpy"),
        versions_compile=versions_in("compile", "torch"),
        versions_ray=versions_in("ray", "ray", "openvino", "pyarrow"),
    )
