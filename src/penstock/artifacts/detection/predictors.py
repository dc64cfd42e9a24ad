"""Checks of model files that a worker's library loads: native formats, and pickles of a library.

What the records of such runtimes share. Nothing is loaded here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.artifacts.detection.pickles import pickle_facts, requirements, untrusted
from penstock.artifacts.files.model_files import FileFacts

#: Requests that are joined where a row's answer never depends on the rows beside it.
REQUESTS_MAX: Final = 32

PICKLES: Final = (".joblib", ".pkl", ".pickle", ".dat", ".sav")


def is_pickle_of(*libraries: str) -> Callable[[Path], bool]:
    """Whether a file is a pickle whose object one of these packages made."""

    def recognises(path: Path) -> bool:
        facts = pickle_facts(path)
        return facts is not None and facts.library in libraries

    return recognises


def checked_pickle(path: Path, file: str, trusted: bool, better: str) -> FileFacts:
    """Raises CallerError (`artifact-untrusted`). `better`: as in `pickles.untrusted`."""
    facts = pickle_facts(path)
    assert facts is not None, "it has been recognised"
    if not trusted:
        raise untrusted(file, facts, better)
    # joblib's files may be compressed, or hold arrays in a way of its own.
    lines = {*requirements(facts), *(("joblib",) if path.suffix == ".joblib" else ())}
    return FileFacts(rows_max=1, framework=tuple(sorted(lines)))
