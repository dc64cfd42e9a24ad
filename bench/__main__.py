"""`python -m bench NAME [options]`: runs one benchmark; its last line is one JSON object."""

from __future__ import annotations

import importlib
import os
import pathlib
import sys


def names() -> list[str]:
    """A benchmark is a module here that defines `main`; the rest are its tools."""
    folder = pathlib.Path(__file__).parent
    return sorted(
        path.stem
        for path in folder.glob("*.py")
        if not path.stem.startswith("_") and "\ndef main(" in path.read_text()
    )


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in names():
        wanted = sys.argv[1] if len(sys.argv) > 1 else ""
        print(f"error[benchmark-unknown]: no benchmark is named '{wanted}'", file=sys.stderr)
        print(f"hint: make bench NAME=... with one of: {', '.join(names())}", file=sys.stderr)
        raise SystemExit(2)
    # Images often set it: each start would compile Penstock anew, which nobody's server does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    importlib.import_module(f"bench.{sys.argv[1]}").main(sys.argv[2:])
