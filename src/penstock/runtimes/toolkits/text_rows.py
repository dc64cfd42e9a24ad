"""Rows of CSV and of libsvm, as XGBoost and AWS's containers of it read them.

Source: encoder.py of sagemaker-xgboost-container. How that reads libsvm changed with version 3:
before, XGBoost's own reader takes columns as they stand, and what a line leaves out is missing;
since then columns that count from 1 are shifted, and what is left out is 0. All raise ValueError.
"""

from __future__ import annotations

import csv
from typing import Any, Final

from penstock.runtimes.toolkits.bodies import rows_of
from penstock.runtimes.toolkits.recordio import COLUMNS_MAX, sparse

LIBSVM: Final = ("text/libsvm", "text/x-libsvm")
_DENSE_SINCE: Final = 3


def csv_rows(text: str) -> Any:
    """An array, by the delimiter that the first line has."""
    import numpy as np

    return np.array(rows_of(text, _delimiter(text.strip().partition("\n")[0])))


def _delimiter(line: str) -> str:
    try:
        found = csv.Sniffer().sniff(line[:512]).delimiter
    except csv.Error:  # one column
        return ","
    return "," if found.isalnum() or found in ".-+" else found


def libsvm(text: str) -> Any:
    """A sparse matrix with the columns as they stand. The label of a line is no feature."""
    rows: list[dict[int, float]] = []
    for at, line in enumerate(text.strip().splitlines()):
        rows.append({})
        for item in line.split():
            column, colon, value = item.partition(":")
            if not colon:
                continue
            try:
                rows[at][int(column)] = float(value)
            except ValueError:
                raise ValueError(f"line {at + 1} has {item[:40]!r}, not COLUMN:VALUE") from None
    if not rows:
        raise ValueError("there are no rows")
    return sparse([(sorted(row), [row[column] for column in sorted(row)], 0) for row in rows])


def libsvm_of(version: str, text: str) -> Any:
    """What the container with this version of XGBoost makes of it."""
    matrix = libsvm(text)
    if int(version.partition(".")[0]) < _DENSE_SINCE:
        return matrix
    rows, columns = matrix.shape
    if rows * columns > COLUMNS_MAX:
        raise ValueError(f"it has {rows} rows of {columns} columns, {COLUMNS_MAX} cells at most")
    first = 1 if matrix.nnz and matrix.indices.min() >= 1 else 0
    return matrix.toarray()[:, first:]
