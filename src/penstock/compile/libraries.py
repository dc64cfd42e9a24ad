"""The libraries of the extra `compile`, imported when they are first needed.

They are large and no part of a server. All of this package imports them here, so that the package
can be imported without them and one place says what to install.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from penstock.distribution import install_command
from penstock.errors import CallerError

#: Modules that are installed by this extra alone.
EXTRA = ("torch", "transformers", "nncf", "safetensors", "sentencepiece")
_TELLING = ("openvino", "nncf")


def missing() -> tuple[str, ...]:
    """The modules of the extra that are not installed. Imports none of them."""
    return tuple(name for name in EXTRA if importlib.util.find_spec(name) is None)


def need(name: str) -> Any:
    """Imports a module. Raises CallerError (`compile-not-installed`, `compile-install-broken`)."""
    if name in _TELLING:
        _tell_nobody()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise CallerError(
            "compile-not-installed",
            f"compiling needs {error.name or name}, which is not installed",
            hint="It is not needed where the model is served. Install it here: "
            + install_command("compile"),
        ) from None
    except (ImportError, RuntimeError, OSError) as error:
        # torchvision of another build than torch breaks the import of transformers with a
        # RuntimeError about an operator that does not exist.
        raise CallerError(
            "compile-install-broken",
            f"{name} can't be imported: {first_line(error)}",
            hint="If it names torchvision: pip uninstall torchvision (nothing here uses it). "
            f"Otherwise reinstall: {install_command('compile')}",
        ) from None


def first_line(error: Exception) -> str:
    """The first line of a library's error that says something, else the error's class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


@functools.cache
def _tell_nobody() -> None:
    """Turns off usage reports. OpenVINO's converter and NNCF report each conversion to Google
    Analytics, unless a file in the home directory declines: a process per message, and seconds of
    waiting without internet access. Users were not asked here; a consent in that file still
    counts."""
    try:
        consent = importlib.import_module("openvino_telemetry.utils.opt_in_checker")
    except ImportError:
        return  # without the package nothing is reported
    asked, result = consent.OptInChecker.check, consent.ConsentCheckResult

    def check(checker: Any, *args: Any, **more: Any) -> Any:
        found = asked(checker, *args, **more)
        return result.DECLINED if found is result.NO_FILE else found

    consent.OptInChecker.check = check
