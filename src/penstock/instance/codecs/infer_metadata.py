"""`InferMetadata` for codecs; runtimes pass it on with nested calls, so it is defined there."""

from __future__ import annotations

from penstock.runtimes.infer_metadata import (
    SEQUENCE_END,
    SEQUENCE_START,
    InferMetadata,
    Parameter,
)

__all__ = ["SEQUENCE_END", "SEQUENCE_START", "InferMetadata", "Parameter"]
