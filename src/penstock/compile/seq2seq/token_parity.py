"""How far a text writer's artifact is from its source: pure arithmetic on two tables of logits.

Compared is every token of the source's own answers, with the source's tokens fed to both (teacher
forcing): one early difference then does not make all that follows look wrong. Differences are in
*spreads*, standard deviations of the source's logits at that step, because a softmax knows no other
unit; what is added to all logits alike counts for nothing.

What users see is another token. How bad one is, the source itself says: by how much it prefers its
own to ours (the *loss*). A token that the source hardly decides is no disagreement, so agreement is
counted where its first choice leads by half of the largest loss allowed, or more.

How large a difference may be, the source says too: it is run once more in the artifact's number
format (BF16, or with its weights rounded to INT8), and a sound artifact differs about as much. So a
model that amplifies rounding is not refused for its nature, and a wrong scale in a model that does
not is found below what any constant could find. What the format may cost at most is a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.compile.contract import Tolerance

Logits = Sequence[np.ndarray]  #: one array [steps, vocabulary] per answer

#: An artifact's mean difference over that of its format. Sound ones were seen at 0.9 to 1.1 (T5,
#: mT5, BART, mBART, Marian, t5-small), one with a single layer of twice its size at 2.2 to 25.
_MEAN_RATIO = 1.5
#: Root mean squares of the format's difference that the largest loss may be: sound artifacts reach
#: 6 over hundreds of steps with two rounded logits each.
_LOSS_RATIO = 8.0
_MEAN_SHARE = 1 / 6  #: of the largest loss that is asked for, as in `targets`
#: Below these no rounding is looked at.
_LEAST = Tolerance(difference_max=0.05, difference_mean=0.005, agreement_min=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenParity:
    """Ours beside the source's, over all steps of all answers."""

    steps: int
    agreement: float  #: equal tokens, over all steps
    agreement_decided: float | None  #: over steps that the source decides; None = there are none
    loss_max: float  #: in spreads; inf if a logit is no number
    difference_mean: float  #: of logits, in spreads
    difference_rms: float


def compare_steps(reference: Logits, ours: Logits, *, margin: float) -> TokenParity:
    """`margin`: the source decides a step where its first choice leads by so many spreads."""
    errors, losses, decided, equal = [], [], [], []
    for theirs, mine in zip(reference, ours, strict=True):
        for step in range(len(theirs)):
            usable = np.isfinite(theirs[step])  # forbidden tokens are -inf in some families
            wanted = theirs[step][usable].astype(np.float64)
            given = mine[step][usable].astype(np.float64)
            spread = float(wanted.std()) or 1.0
            first, second = np.sort(np.partition(wanted, -2)[-2:])[::-1]
            if np.isfinite(given).all():
                error = (given - wanted) / spread
                errors.append(error - error.mean())
                chosen = int(given.argmax())
                losses.append((first - wanted[chosen]) / spread)
            else:  # no parity, whatever the other steps are
                errors.append(np.full_like(wanted, np.inf))
                chosen = -1
                losses.append(float("inf"))
            decided.append((first - second) / spread >= margin)
            equal.append(chosen == int(wanted.argmax()))
    if not errors:
        return TokenParity(
            steps=0, agreement=0.0, agreement_decided=None, loss_max=float("inf"),
            difference_mean=float("inf"), difference_rms=float("inf"),
        )  # fmt: skip
    flat, same, clear = np.concatenate(errors), np.array(equal), np.array(decided)
    return TokenParity(
        steps=len(losses),
        agreement=float(same.mean()),
        agreement_decided=float(same[clear].mean()) if clear.any() else None,
        loss_max=float(np.max(losses)),
        difference_mean=float(np.abs(flat).mean()),
        difference_rms=float(np.sqrt((flat**2).mean())),
    )


def tolerance_for(rounded: TokenParity, ceiling: Tolerance) -> Tolerance:
    """What an artifact may differ whose source differs by `rounded` in the artifact's format."""
    return Tolerance(
        difference_max=min(
            ceiling.difference_max,
            max(_LEAST.difference_max, _LOSS_RATIO * rounded.difference_rms),
        ),
        difference_mean=min(
            ceiling.difference_mean,
            max(_LEAST.difference_mean, _MEAN_RATIO * rounded.difference_mean),
        ),
        agreement_min=ceiling.agreement_min,
    )


def tolerance_asked(loss_max: float, ceiling: Tolerance) -> Tolerance:
    """What a caller allows who names the largest loss."""
    return Tolerance(
        difference_max=loss_max,
        difference_mean=loss_max * _MEAN_SHARE,
        agreement_min=ceiling.agreement_min,
    )
