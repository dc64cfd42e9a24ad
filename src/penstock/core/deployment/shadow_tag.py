"""An inference component as the shadow of another one of its endpoint: it gets copies of its
requests, and answers no caller.

AWS has shadows of variants only. A tag of the component says it, since every SDK can set tags:

    penstock:shadow-of    chat
    penstock:shadow-of    chat share=0.5

A shadow has copies of its own, which answer nobody else. So it is no adapter, whose copies are
those of its base, and no base. One component has one shadow, and a shadow has none. The source may
be gone, or come back under its name: meanwhile nothing is copied.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.deployment.capacity_spec import ComponentSpec, ShadowSpec
from penstock.errors import CallerError

TAG: Final = "penstock:shadow-of"
_SHARE: Final = "share="


def of_tags(tags: Mapping[str, str]) -> ShadowSpec | None:
    """What the tags of a component say; None: it is no shadow, or the tag can't be read, which may
    be older than its meaning."""
    with contextlib.suppress(CallerError):
        return parsed(tags[TAG]) if TAG in tags else None
    return None


def parsed(value: str) -> ShadowSpec:
    """Raises CallerError (`shadow-invalid`)."""
    source, *words = value.split() or [""]
    if not source or source.startswith(_SHARE):
        raise _invalid("it names no component")
    if len(words) > 1:
        raise _invalid(f"there is nothing to be said by {words[1]!r}")
    return ShadowSpec(source, _share_of(words[0])) if words else ShadowSpec(source)


def check(name: str, shadow: ShadowSpec, base: str, others: Iterable[ComponentSpec]) -> None:
    """Raises CallerError (`shadow-invalid`) where a component can't be this shadow.

    Args:
        name: of the component.
        base: of an adapter.
        others: the endpoint's other components, without those that are being deleted.
    """
    if shadow.is_of(name):
        raise _invalid(f"{name!r} can't be the shadow of itself")
    if base:
        raise _invalid(
            f"{name!r} is an adapter: its copies are those of {base!r}, which answer callers"
        )
    found = {one.name.lower(): one for one in others}
    source = found.get(shadow.source.lower())
    if source is None:
        raise _invalid(f"its endpoint has no inference component {shadow.source!r}")
    if source.shadow is not None:
        raise _invalid(f"{source.name!r} is a shadow itself, of {source.shadow.source!r}")
    for one in found.values():
        if one.base.lower() == name.lower():
            raise _invalid(f"{name!r} is the base of {one.name!r}, which answers callers")
        if one.shadow is not None and one.shadow.is_of(name):
            raise _invalid(f"{name!r} has a shadow itself, {one.name!r}")
        if one.shadow is not None and one.shadow.is_of(source.name):
            raise _invalid(f"{source.name!r} has a shadow already, {one.name!r}")


def _share_of(word: str) -> float:
    try:
        share = float(word.removeprefix(_SHARE)) if word.startswith(_SHARE) else math.nan
    except ValueError:
        share = math.nan
    if not 0.0 < share <= 1.0:
        raise _invalid(f"{word!r} has to be share= with a number above 0, and at most 1")
    return share


def _invalid(cause: str) -> CallerError:
    return CallerError(
        "shadow-invalid",
        f"The tag {TAG} can't be so: {cause}.",
        hint="Write the name of an inference component of the same endpoint, and share=0.5 where"
        " only a part of its requests is to be copied.",
    )
