"""Artifacts that somebody is writing at this moment: not broken, not yet whole.

Uploads are not announced. What tells of one is that the source changes while it is read, or that a
young file ends where an archive or a model must not. Such an artifact may be whole a moment later,
so it is `NotNowError`, and an old one with the same fault is its owner's.
"""

from __future__ import annotations

from typing import Final

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.sources.fetch import look
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.clock import Clock, SystemClock
from penstock.errors import CallerError, NotNowError, PenstockError

#: A copy under way writes all the time. Twice the longest pause of a loaded disk or network that
#: still goes on, and short enough to tell who packed a broken model of it while he looks on.
YOUNG_S: Final = 10.0
RETRY_S: Final = 1.0
_LOOK_S: Final = 10.0

#: What an archive that was cut short fails with. Nothing else does.
_CUT_SHORT: Final = "archive-truncated"
#: What a folder or a file fails with of which a part is missing, and others that are simply wrong.
_MAYBE_PARTIAL: Final = frozenset(
    {
        "archive-unreadable",
        "artifact-empty",
        "artifact-incomplete",
        "artifact-layout-unknown",
        "model-file-invalid",
        "model-yaml-invalid",
        "pbtxt-invalid",
        "source-damaged",
        "source-unknown",
        "tokenizer-damaged",
        "tokenizer-missing",
        "weights-damaged",
        "weights-incomplete",
        "weights-missing",
        "weights-unreadable",
    }
)


def judged(
    error: CallerError,
    source: ArtifactSource,
    settings: ArtifactSettings,
    *,
    clock: Clock | None = None,
) -> PenstockError:
    """`error`, or the `NotNowError` (`artifact-incomplete`) that it is for a source so young.

    A model of its own is deployed once all of it is there: of it only an archive that is cut short
    is waited for. Target models are copied to their prefix while they are called, so of them
    anything that looks partial is, and an archive cut short whatever its age: its upload may pause.
    """
    target = bool(source.within)
    if error.code != _CUT_SHORT and not (target and error.code in _MAYBE_PARTIAL):
        return error
    clock = clock or SystemClock()
    budget = Budget(source.shown_uri(), bytes_max=0, seconds_max=_LOOK_S, clock=clock)
    try:
        listing = look(source.uri, settings, budget, clock=clock, within=source.within)
    except PenstockError:
        return error
    young = clock.wall() < listing.changed_at + YOUNG_S
    if not young and not (target and error.code == _CUT_SHORT):
        return error
    return NotNowError(
        "artifact-incomplete",
        f"not all of it is there yet, as it seems: {error.message}",
        hint="Wait until it is copied; better, copy it under a hidden name and rename it. If "
        f"nobody writes it: {error.hint}",
        retry_after_s=RETRY_S,
    )


def changed(what: str) -> NotNowError:
    """A source of several files that were not all of one version."""
    return NotNowError(
        "artifact-changed",
        f"{what}: files were added, removed or replaced while it was read",
        hint="Deploy when all files are there; better, copy them to a new folder and rename it.",
        retry_after_s=RETRY_S,
    )
