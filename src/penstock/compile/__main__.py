"""`python -m penstock.compile SOURCE OUT TARGET [OPTIONS]`: one compile as a child process.

An instance starts it, or a compile of several builds (`builds`), which passes all OPTIONS as JSON.
It prints its steps, and after a failure its error as one line of JSON, for the starting process to
raise. It ends with the process that started it, whose end closes standard input; behind walls a
guard ends it instead, and there is no such pipe. The next compile removes anything that is left
half made (`staging`).
"""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from pathlib import Path

from penstock.compile.build import compile_model
from penstock.compile.contract import Options, options_from
from penstock.errors import PenstockError

_NICENESS = 10  #: models that are served meanwhile come first


def main(source: str, out: str, target: str, given: str = "") -> int:
    # A compile for an instance is not timed: nobody reads the figures, and other models need the
    # cores.
    options = options_from(given) if given else Options(target=target, measure_s=0.0)
    try:
        compile_model(Path(source), Path(out), options, say=lambda line: print(line, flush=True))
    except PenstockError as error:
        print(json.dumps(error.to_dict()), flush=True)
        return 1
    return 0


def end_with_parent() -> None:
    # Not `sys.stdin`: its lock would be held when the interpreter shuts down.
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        os.nice(_NICENESS)
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=end_with_parent, daemon=True).start()
    raise SystemExit(main(*sys.argv[1:5]))
