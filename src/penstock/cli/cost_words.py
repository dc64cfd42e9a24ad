"""Figures of cost reports as people read them, in tables and on the page."""

from __future__ import annotations

from math import floor, log10
from typing import Final

_DIGITS: Final = 3
_PLACES_MAX: Final = 12


def figure(amount: float) -> str:
    """Three digits that count, never with an exponent: 12.3, 0.0000881; 0 for what is smaller than
    a millionth of a millionth."""
    if amount == 0.0 or abs(amount) < 10.0**-_PLACES_MAX:
        return "0"
    places = max(0, min(_DIGITS - 1 - floor(log10(abs(amount))), _PLACES_MAX))
    text = f"{amount:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def money(dollars: float) -> str:
    return f"${figure(dollars)}"


def saved(share: float) -> str:
    """What is cheaper in percent; what is dearer by how many times: -3900% says nothing."""
    return f"{share:.0%}" if share >= 0.0 else f"{figure(round(1.0 - share, 2))} x as dear"
