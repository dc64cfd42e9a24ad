"""Which target models of a multi-model host are loaded and evicted, and why.

`machine.py` is the machine that a driver feeds, `outcomes.py` its half for results of loads, ends
and failures; `actions.py` has its actions, `spec.py` its settings. Behind it: `model.py` has the
models and their states, `account.py` counts memory, `loads.py` decides which load begins and which
requests are refused, `evictor.py` which models are evicted for it.
"""

from penstock.core.residency.actions import Action, Admit, Load, Prepare, RefuseParked, Unload
from penstock.core.residency.machine import Residency
from penstock.core.residency.spec import NOTHING, Footprint, ResidencySpec

__all__ = [
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
