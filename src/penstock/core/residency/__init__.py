"""Which target models of a multi-model host are loaded and evicted, and why.

`machine.py` is the machine that a driver feeds, `outcomes.py` its half for results of loads, ends
and failures; `actions.py` has its actions, `spec.py` its settings. Behind it: `model.py` is the
state of a model, `table.py` holds all models; `account.py` counts memory; `loads.py` decides which
load begins, `evictor.py` which models are evicted for it, `refusals.py` which requests are refused.
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
