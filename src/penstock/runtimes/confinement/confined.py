"""`python -m penstock.runtimes.confinement.confined FD MODULE ARG...`: runs MODULE in the sandbox.

The rules are read from FD (JSON of `walls.Walls`). They are applied before any import that starts
threads: such threads would be outside. Standard library alone: the interpreter may be an engine's
own.
"""

from __future__ import annotations

import json
import runpy
import sys

from penstock.runtimes.confinement import landlock, network


def main() -> None:
    told, module, *arguments = sys.argv[1:]
    with open(int(told), "rb") as file:
        walls = json.load(file)
    try:
        if not walls["network"]:
            network.leave()  # must come first: it needs capabilities
        landlock.drop_capabilities(walls["drop"])
        if walls["files"]:
            landlock.restrict(walls["read"], walls["write"])
    except OSError as error:
        sys.stderr.write(f"the model's process can't be confined: {error}\n")
        sys.exit(1)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
