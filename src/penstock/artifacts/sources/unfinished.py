"""Artifacts that are still being written: not broken, only incomplete.

Nobody announces an upload. Its signs are a source that changes while it is read, and a young file
that ends where an archive or a model can't end. Such an artifact may be whole a moment later, so
the error is `NotNowError`. An old artifact with the same fault is its owner's to fix.
"""

from __future__ import annotations

from typing import Final

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.sources.fetch import look
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.clock import Clock, SystemClock
from penstock.errors import CallerError, NotNowError, PenstockError

#: A running copy writes all the time. 10 s is twice the longest pause of a busy disk or network,
#: and short enough to report a badly packed model while its owner still watches.
YOUNG_S: Final = 10.0
RETRY_S: Final = 1.0
_LOOK_S: Final = 10.0

#: Code of the error for an archive that was cut short. No other fault has it.
_CUT_SHORT: Final = "archive-truncated"
#: Codes of errors for folders or files with a missing part; other faults have them as well.
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
    """`error`, or `NotNowError` (`artifact-incomplete`) where the source is so young.

    An artifact of an ordinary endpoint is deployed once it is complete, so only a cut archive is
    waited for. Target models are copied to their prefix while they are called, so any that looks
    incomplete is waited for, and a cut archive at any age: its upload may pause.
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
    """The error for a source whose files were not all of one version."""
    return NotNowError(
        "artifact-changed",
        f"{what}: files were added, removed or replaced while it was read",
        hint="Deploy when all files are there; better, copy them to a new folder and rename it.",
        retry_after_s=RETRY_S,
    )
