"""Runs `pip install` and says what it is doing: a line a step, instead of minutes of silence.

    python tools/install.py "Penstock" --editable .

The first argument names what is installed, the others are pip's. What pip itself prints is kept
aside and shown only where it fails. Standard library alone: it runs before anything is installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator

#: A download of less is over before it could be read.
SHOWN_BYTES_MIN = 5_000_000
#: Lines of pip's that are shown where it fails.
TAIL_LINES = 40

_FETCH = re.compile(
    r"\s*(?:Downloading|Using cached) (?P<file>\S+) \((?P<size>[\d.]+) (?P<unit>\w+)\)"
)
_UNITS = {"bytes": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def steps(lines: Iterable[str]) -> Iterator[str]:
    """What a person wants to know of pip's output: large files, counts and what comes next."""
    packages = 0
    for line in lines:
        if line.startswith("Collecting "):
            packages += 1
            if packages == 1:
                yield "looking up packages"
        elif fetched := _FETCH.match(line):
            size = float(fetched["size"]) * _UNITS.get(fetched["unit"], 1)
            if size >= SHOWN_BYTES_MIN:
                name = fetched["file"].rpartition("/")[2].partition("-")[0]
                yield f"fetching {name} ({fetched['size']} {fetched['unit']})"
        elif line.startswith("Installing collected packages: "):
            count = line.count(",") + 1
            yield f"unpacking {count} package{'s' if count > 1 else ''}"


def install(what: str, arguments: list[str]) -> int:
    """pip's exit code."""
    print(f"installing {what}; the first time takes a few minutes", flush=True)
    begun = time.monotonic()
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    argv = [sys.executable, "-m", "pip", "install", "--progress-bar", "off", *arguments]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None
        for step in steps(_kept(pip.stdout, tail)):
            print(f"  {step}", flush=True)
    if pip.returncode:
        sys.stderr.write("".join(tail))
        print(f"{what} could not be installed: pip's last lines are above", file=sys.stderr)
    else:
        print(f"  done in {time.monotonic() - begun:.0f} s", flush=True)
    return pip.returncode


def _kept(lines: Iterable[str], tail: deque[str]) -> Iterator[str]:
    for line in lines:
        tail.append(line)
        yield line


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(install(sys.argv[1], sys.argv[2:]))
