"""Which of a machine's accelerators an instance gets, and a container of it.

Their names are numbers or UUIDs, as in CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection


def choose_devices(count: int, held: Collection[str], visible: str) -> tuple[str, ...]:
    """The first `count` devices that nobody else holds.

    `visible`: CUDA_VISIBLE_DEVICES; "" = all of the machine. Whoever counted them says how many
    there are: that there are enough was decided before.
    """
    named = [each.strip() for each in visible.split(",") if each.strip()]
    offered = named or map(str, itertools.count())
    return tuple(itertools.islice((each for each in offered if each not in held), count))
