"""How good answers are: exact matches, of all queries and of those with and without errors.

Serves `export.py`. Knows pairs and answers, not who gave them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pairs import Pair


def figures(answers: Sequence[str], pairs: Sequence[Pair]) -> dict[str, float]:
    """Shares: `exact` of all; `corrected` of the misspelt; `left_alone` of the well spelt."""
    right = [answer == pair.meant for answer, pair in zip(answers, pairs, strict=True)]
    wrong = [pair.typed != pair.meant for pair in pairs]
    result = {"exact": _share(right)}
    if any(wrong):
        result["corrected"] = _share([r for r, w in zip(right, wrong, strict=True) if w])
    if not all(wrong):
        result["left_alone"] = _share([r for r, w in zip(right, wrong, strict=True) if not w])
    return result


def examples_of_failure(
    answers: Sequence[str], pairs: Sequence[Pair], count: int = 12
) -> list[dict[str, str]]:
    """The first queries that were answered wrongly."""
    failed = [
        {"typed": pair.typed, "meant": pair.meant, "answered": answer}
        for answer, pair in zip(answers, pairs, strict=True)
        if answer != pair.meant
    ]
    return failed[:count]


def _share(values: Sequence[bool]) -> float:
    return round(sum(values) / len(values), 4)
