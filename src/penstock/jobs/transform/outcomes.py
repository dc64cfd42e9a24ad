"""What an error of an instance, or of a place, means for the job."""

from __future__ import annotations

from typing import Final

from penstock.core.jobs.job_actions import AWAY, CRASH, FULL, LATER, TAKEN, WRONG
from penstock.core.request.storage_failures import is_storage
from penstock.errors import CallerError, PenstockError

#: The copy is being ended, or its connection has gone because its instance is.
_TAKEN: Final = (
    "transform-copy-ending",
    "transform-caller-gone",
    "transform-stopped",
    "unknown-copy",
)
_GONE: Final = "instance-gone"
#: The call itself can't be read: ours, and never the data's fault.
_OURS: Final = "bad-control-call"
#: A disk of this machine that spans write to, whichever object they are of.
_OF_DISKS: Final = ("artifact-disk-full", "artifact-disk-failed")


def kind_of_span(error: PenstockError, *, begun: bool, stopped: bool) -> str:
    """wrong | crash | taken | away | full | later.

    Args:
        begun: the instance had been told of the span.
        stopped: the instance is being stopped, or was.
    """
    if error.code in _TAKEN:
        return TAKEN
    if error.code == _GONE:
        return CRASH if begun and not stopped else TAKEN
    if is_storage(error):
        return FULL if error.code in _OF_DISKS else AWAY
    return WRONG if isinstance(error, CallerError) and error.code != _OURS else LATER


def kind_of_output(error: PenstockError) -> str:
    """wrong | away | later."""
    if is_storage(error):
        return AWAY
    return WRONG if isinstance(error, CallerError) else LATER


def reason_of(error: PenstockError) -> str:
    """For people: what happened and what to do."""
    return f"{error.message.rstrip('.')}. {error.hint}".rstrip()
