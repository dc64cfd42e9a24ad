"""What a Booster was trained for: its objective, and the sizes of what it takes and gives.

XGBoost tells from version 1.0 on (`save_config`). Before that it is read from the model's binary
form: a struct of 136 bytes (base score, features, classes, ...), then the objective's name after
its length. Source: src/learner.cc of XGBoost 0.90 (LearnerModelParam, LearnerImpl::Save).
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, NamedTuple

#: base score, features, classes, and reserved bytes; then the length of the objective's name
_BINARY: Final = struct.Struct("<fIi124xQ")


class Learner(NamedTuple):
    objective: str
    features: int
    classes: int  #: 0: it does not tell classes apart
    targets: int


def learner_of(booster: Any) -> Learner:
    """Reads it from a loaded Booster of any version."""
    if not hasattr(booster, "save_config"):
        raw = bytes(booster.save_raw())
        _, features, classes, size = _BINARY.unpack_from(raw)
        name = raw[_BINARY.size : _BINARY.size + size].decode()
        return Learner(name, features, classes, 1)
    told = json.loads(booster.save_config())["learner"]
    sizes = told["learner_model_param"]
    return Learner(
        str(told["objective"]["name"]),
        int(sizes.get("num_feature", 0)),
        int(sizes.get("num_class", 0)),
        int(sizes.get("num_target", 1)),
    )
