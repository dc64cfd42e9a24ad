"""Which target models of a multi-model host are loaded, evicted and prefetched, and why.

`machine.py` is the machine that a driver feeds, `outcomes.py` its half that loads and failures
drive; `actions.py` what it answers; `spec.py` what it is told. Behind it: `account.py` counts
memory, `history.py` calls, `victims.py` chooses who goes.
"""

from penstock.core.residency.actions import Action, Admit, Load, Prepare, RefuseParked, Unload
from penstock.core.residency.machine import Residency
from penstock.core.residency.spec import GDSF, LRU, NOTHING, Footprint, ResidencySpec

__all__ = [
    "GDSF",
    "LRU",
    "NOTHING",
    "Action",
    "Admit",
    "Footprint",
    "Load",
    "Prepare",
    "RefuseParked",
    "Residency",
    "ResidencySpec",
    "Unload",
]
