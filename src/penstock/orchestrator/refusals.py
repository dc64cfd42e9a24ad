"""The errors of the orchestrator, each with what the caller can do about it."""

from __future__ import annotations

from penstock.core.routing import NoRoute
from penstock.core.traffic.spec import NO_REGION_SERVES
from penstock.errors import CallerError, NotNowError, PenstockError

_NO_ROOM = {
    "held-too-many": "no region has room for it, and as many requests wait as may",
    "held-too-long": "no region had room for it in the time that requests may wait",
    "session-region-full": "the region that its session is in has no room for it",
}


def no_region(endpoint: str, refused: NoRoute, regions: str) -> PenstockError:
    """No region can take the request. `regions`: the state of each."""
    if refused.reason == "no-region-allowed":
        return CallerError(
            "no-region-allowed",
            f"No region that {_whose(endpoint)} may go to has it.",
            hint="'penstock traffic show' tells which regions have it, and what it is pinned to.",
        )
    if refused.reason == NO_REGION_SERVES:
        return unreachable(f"The request for {_whose(endpoint)} was not answered", regions)
    why = _NO_ROOM.get(refused.reason, "no region has room for it now")
    return NotNowError(
        "no-region-room",
        f"The request for {_whose(endpoint)} was not answered: {why}.",
        hint="Try again in a moment, or add copies; 'penstock traffic show' tells each region's"
        " room.",
        retry_after_s=refused.retry_after_s or 1.0,
    )


def unreachable(what: str, regions: str) -> PenstockError:
    """No region can be reached. `regions`: the state of each."""
    return NotNowError(
        "no-region-reachable",
        f"{what}: no region can be reached ({regions}).",
        hint="'penstock traffic show' tells what is wrong with each; see whether they run, and the"
        " network and keys between.",
        retry_after_s=1.0,
    )


def regions_lost(endpoint: str) -> PenstockError:
    """All regions were tried, one after the other."""
    return NotNowError(
        "regions-lost",
        f"The request for {_whose(endpoint)} was not answered: every region that was asked was lost"
        " with it, or refused it.",
        hint="Try again in a moment; 'penstock explain' with the request's id tells what each did.",
        retry_after_s=1.0,
    )


def deadline_passed(endpoint: str, *, held: bool) -> PenstockError:
    what = "had no region with room" if held else "was not answered"
    return NotNowError(
        "deadline-passed",
        f"The request for {_whose(endpoint)} {what} within the time that it allowed.",
        hint="Allow more time, or send fewer requests at once.",
    )


def lost(endpoint: str, region: str) -> PenstockError:
    return NotNowError(
        "region-lost",
        f"Region {region} was lost with a request for {_whose(endpoint)}, which it may have taken.",
        hint="See whether it was done before you send it again.",
    )


def broken(endpoint: str, region: str) -> PenstockError:
    return NotNowError(
        "stream-broken",
        f"Region {region}, which was answering for {_whose(endpoint)}, is gone; part of the answer"
        " was sent.",
        hint="Send the request again.",
        retry_after_s=1.0,
    )


def region_only(path: str) -> PenstockError:
    return CallerError(
        "region-only",
        f"{path} is a region's own: the orchestrator does not pass it on.",
        hint="Ask the region itself; 'penstock traffic show' names the addresses.",
        status=404,
    )


def _whose(endpoint: str) -> str:
    return f"endpoint {endpoint}" if endpoint else "no endpoint of its own"
