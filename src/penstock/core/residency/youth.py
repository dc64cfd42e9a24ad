"""How long a model that was just loaded, or called, stays where another one could go in its place.

A cache that is too small for what is called loads all the time. A fixed minimum (10 s, which it
was) is nothing for a model that takes a minute to load, and an age for one that takes a tenth of a
second, while whoever needs its place waits: with 24 models that load in 0.15 s, of which 8 fit, and
six calls a second, half of the callers waited 7 s. So two rules:

* A model stays for three times what having it back costs, within bounds: of the time that it takes
  memory at most a fourth is its load.
* One that comes and goes all the time stays longer, each load of it being cheap: it is loaded five
  times within 16 s at most. Else its callers together wait more than if it had stayed, and loads
  take the cores of those who answer.
"""

from __future__ import annotations

from typing import Final

from penstock.core.residency.model import LOADS_KEPT, TargetModel
from penstock.core.residency.spec import ResidencySpec

_RELOADS: Final = 3.0
#: However soon it is back: callers of one moment find it.
_S_MIN: Final = 0.5
#: However long its load takes: others wait for its place.
_S_MAX: Final = 10.0
#: `LOADS_KEPT` loads take at least so long.
_PACE_S: Final = 16.0


def stays_s(spec: ResidencySpec, model: TargetModel) -> float:
    """As the settings say, else by what its loads have taken."""
    if spec.residency_s_min is not None:
        return spec.residency_s_min
    return min(max(_RELOADS * model.reload_s, _S_MIN), _S_MAX)


def stays_until(spec: ResidencySpec, model: TargetModel) -> float:
    """The end of its minimum residency; it is loaded."""
    until = model.loaded_at + stays_s(spec, model)
    if spec.residency_s_min is None and len(model.loads_at) == LOADS_KEPT:
        return max(until, model.loads_at[0] + _PACE_S)
    return until
