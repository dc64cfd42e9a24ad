"""pyarrow, which belongs to an extra and is imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.errors import CallerError


def arrow() -> Any:
    """The package, with `compute`. Raises `CallerError` (`parquet-missing`)."""
    _module("pyarrow.compute")
    return _module("pyarrow")


def arrow_parquet() -> Any:
    """Its module for reading and writing Parquet. Raises `CallerError` (`parquet-missing`)."""
    return _module("pyarrow.parquet")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CallerError(
            "parquet-missing",
            f"Parquet needs pyarrow, which this server lacks: {error}",
            hint="Install the extra on the server: pip install 'penstock[parquet]'.",
        ) from error
