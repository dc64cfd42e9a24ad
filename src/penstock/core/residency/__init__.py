"""Which target models of a multi-model host are loaded and evicted, and why.

`machine.py` is the machine that a driver feeds, `outcomes.py` its half that loads and failures
drive; `actions.py` what it answers; `spec.py` what it is told. Behind it: `model.py` is the state
of a model, `table.py` all of them; `account.py` counts memory; `loads.py` says which load begins,
`evictor.py` who goes for it, `refusals.py` whom it is too late for.
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
