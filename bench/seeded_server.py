"""`python -m bench.seeded_server SEED up ...`: Penstock, whose chances are those of a seed.

So a measured run and the twin's draw the same lots, and what differs is not luck.
"""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace

from penstock.api import platform
from penstock.cli.main import main

if __name__ == "__main__":
    seed = sys.argv.pop(1)
    platform.random = SimpleNamespace(Random=lambda: random.Random(seed))  # type: ignore[assignment]
    main()
