"""Which artifact answers for a target model of a multi-model endpoint.

Without a word of it here, a target model is the artifact of its own name below the endpoint's
prefix. A rollout gives its callers another one, a part of the requests at a time; from its end on
that one answers under the name, and the former one stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.rollout.policy import RolloutPolicy, RolloutProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTarget:
    """What answers for one target model, and what is to."""

    target: str  #: the name that requests give
    serves: str  #: the name of the artifact that answers
    incoming: str = ""  #: of the one that is rolled out; "" = none
    policy: RolloutPolicy | None = None  #: of that rollout
    progress: RolloutProgress | None = None  #: None: it has not begun
    why: str = ""  #: why the last rollout went back; "" = it did not

    @property
    def is_itself(self) -> bool:
        """Whether the artifact of its own name answers, and no other is to."""
        return self.serves == self.target and not self.incoming
