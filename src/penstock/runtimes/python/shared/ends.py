"""The errors that models get when their worker has ended, or when they are given up."""

from __future__ import annotations

from penstock.errors import InternalError, ModelError, PenstockError
from penstock.runtimes.python.shared.member import PoolMember


def end_of_worker(error: PenstockError, guilty: PoolMember | None, outgrown: bool) -> PenstockError:
    """The error for every model of a worker that ended."""
    words = error.message
    if outgrown:
        words = f"{words}, because its models together took more memory than a worker may"
    elif guilty is not None:
        did = "computing" if guilty.loaded.done() else "loading"
        words = f"{words} while {guilty.name} was {did}"
    return ModelError(error.code, words, hint=error.hint)


def failure_of(reason: str, member: PoolMember, bytes_max: int) -> PenstockError:
    if reason == "model-outgrew-worker":
        return ModelError(
            reason,
            f"{member.name} alone took more than the {bytes_max / 2**20:.0f} MiB of memory that a"
            " worker of Python models may",
            hint="It leaks, or needs a larger worker. The other models were not touched.",
        )
    if member.error is not None:
        return ModelError(
            "model-quarantined",
            f"{member.name} is not started again: {member.error.message}",
            hint="Its own output is in the instance's log. The other models were not touched.",
        )
    return InternalError(reason, f"{member.name} was given up")
