"""`python -m penstock.sim scenarios/`: run scenario files through the twin.

`SEED` in the environment (or `--seed`) replaces the seed of every file. The last line is one JSON
object. Wrong input prints `error[code]: message` and `hint: ...`, and the exit status is 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import orjson

from penstock.errors import CallerError
from penstock.sim.report import run_files


def main(arguments: list[str], environment: dict[str, str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.sim", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="scenario files or their directories")
    parser.add_argument("--seed", help="instead of the seed of each file")
    chosen = parser.parse_args(arguments)
    try:
        seed = _seed(chosen.seed or environment.get("SEED"))
        if seed is not None:
            print(f"seed {seed}\n")
        report = run_files(chosen.paths, seed)
    except CallerError as error:
        print(f"error[{error.code}]: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return 2
    print(orjson.dumps(report).decode())
    return 0


def _seed(text: str | None) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise CallerError(
            "invalid-seed", f"the seed is {text!r}", hint="SEED and --seed take a whole number."
        ) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))
