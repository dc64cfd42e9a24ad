"""The key `engine.pace` of model.yaml: the table of times that a paced engine keeps.

The first five keys are called as in a scenario's `[generation]`: a table can be carried over.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from penstock.artifacts.description.description import PaceSpec
from penstock.artifacts.description.yaml_keys import Keys

KEY: Final = "pace"
#: A step of a few microseconds would be a busy loop; one of more than ten minutes looks dead.
_STEP_S: Final = (1e-4, 600.0)
_EACH_S_MAX: Final = 10.0
_LOAD_S_MAX: Final = 3600.0
_SIGMA_MAX: Final = 2.0
_TOKENS_MAX: Final = 10_000_000
_PREFIXES_MAX: Final = 1_000_000
_SEED_MAX: Final = 2**63 - 1


def parse(engine: Keys) -> PaceSpec | None:
    """None where the key is not there. Raises CallerError (`model-yaml-invalid`)."""
    section = engine.section(KEY)
    if section is None:
        return None
    default = PaceSpec()

    def seconds(name: str, low: float, high: float) -> float:
        found = section.number(name, low=low, high=high)
        return float(getattr(default, name)) if found is None else found

    pace = PaceSpec(
        step_s=seconds("step_s", *_STEP_S),
        sequence_s=seconds("sequence_s", 0.0, _EACH_S_MAX),
        prefill_token_s=seconds("prefill_token_s", 0.0, _EACH_S_MAX),
        prefixes_cached_max=section.integer(
            "prefixes_cached_max", default.prefixes_cached_max, low=0, high=_PREFIXES_MAX
        ),
        sigma=seconds("sigma", 0.0, _SIGMA_MAX),
        seed=section.integer("seed", default.seed, low=0, high=_SEED_MAX),
        prefix_tokens=section.integer(
            "prefix_tokens", default.prefix_tokens, low=0, high=_TOKENS_MAX
        ),
        answer_tokens=section.integer(
            "answer_tokens", default.answer_tokens, low=0, high=_TOKENS_MAX
        ),
        load_s=seconds("load_s", 0.0, _LOAD_S_MAX),
    )
    section.done()
    return pace


def dump(pace: PaceSpec) -> dict[str, Any]:
    """What `parse` reads back as this table."""
    return asdict(pace)
