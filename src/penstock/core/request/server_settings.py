"""Triton's log and trace settings in terms of what this server has: a level, and a share of traces.

Its own log has levels, each of which includes the more severe ones. So Triton's switches are read
as a level, and a combination that no level gives is refused, as is what the server does not have
(files, formats). Its traces go where the operator sends them, and callers change nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from penstock.errors import CallerError

#: Python's numbers: a log with a level writes it and all higher ones.
_DEBUG: Final = 10
_NOTHING: Final = 50
#: Switch -> the level up to which it is on, from the most severe one.
_SWITCHES: Final = {
    "log_error": 40,
    "log_warning": 30,
    "log_info": 20,
}
_VERBOSE: Final = "log_verbose_level"
_FIXED: Final = {"log_file": "", "log_format": "default"}


def log_settings(level: int) -> dict[str, Any]:
    """Triton's settings of a log with this level, a number of `logging`."""
    return {
        "log_file": "",
        **{name: level <= lowest for name, lowest in reversed(_SWITCHES.items())},
        _VERBOSE: int(level <= _DEBUG),
        "log_format": "default",
    }


def log_level_after(level: int, given: Mapping[str, Any]) -> int:
    """The level once these settings are changed; a setting of None stays as it is.

    Raises CallerError (`log-setting-unsupported`) with the name of one that can't be.
    """
    wanted = log_settings(level)
    for name, value in given.items():
        if value is not None:
            _check_log(name, value)
            wanted[name] = value
    found = _NOTHING
    switches = [*_SWITCHES.items(), (_VERBOSE, _DEBUG)]
    for at, (name, lowest) in enumerate(switches):
        if not wanted[name]:
            lower = [other for other, _ in switches[at:] if wanted[other]]
            if lower:
                _refuse_log(
                    lower[0],
                    f"is on and {name} is off, but each level includes the more severe ones",
                    f"Give {name} with it, or turn {lower[0]} off.",
                )
            return found
        found = lowest
    return found


def _check_log(name: str, value: Any) -> None:
    if name in _FIXED:
        if value != _FIXED[name]:
            hint = "The server writes to its standard error; the operator redirects it."
            _refuse_log(name, f"can't be {str(value)[:80]!r}: only {_FIXED[name]!r}", hint)
    elif name == _VERBOSE:
        if type(value) is not int or value not in (0, 1):
            _refuse_log(name, f"is {str(value)[:80]!r}", "There is one verbose level: 0 or 1.")
    elif name not in _SWITCHES:
        _refuse_log(name, "is no setting of the log", f"There are {', '.join(log_settings(0))}.")
    elif not isinstance(value, bool):
        _refuse_log(name, f"is {str(value)[:80]!r}", "It takes true or false.")


def _refuse_log(name: str, why: str, hint: str) -> NoReturn:
    raise CallerError("log-setting-unsupported", f"{name[:80]} {why}.", hint=hint)


def trace_settings(share: float) -> dict[str, Any]:
    """Triton's settings where this share of requests is recorded, 0 to 1; 0 = none is."""
    return {
        "trace_level": ["TIMESTAMPS"] if share > 0 else ["OFF"],
        "trace_rate": str(max(1, round(1 / share))) if share > 0 else "0",
        "trace_count": "-1" if share > 0 else "0",
        "trace_mode": "opentelemetry",
    }


def check_trace(share: float, given: Mapping[str, Any]) -> None:
    """Returns if these settings are as they are, or None.

    Raises CallerError (`trace-setting-unsupported`) with the name of one that is not.
    """
    shown = trace_settings(share)
    for name, value in given.items():
        values = [str(each) for each in (value if isinstance(value, list) else [value])]
        now = shown.get(name, "")
        if value is not None and values and values != ([now] if isinstance(now, str) else now):
            raise CallerError(
                "trace-setting-unsupported",
                f"{name[:80]} can't be changed by a request.",
                hint="The operator sets telemetry.trace_share and telemetry.otlp_endpoint;"
                " a caller has its own request traced by a traceparent header.",
                status=501,
            )
