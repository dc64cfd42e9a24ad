"""Artifacts whose model is a few lines of Python, by SageMaker's contract, and pipelines."""

from __future__ import annotations

import textwrap
from pathlib import Path

#: Says back what it is sent, at once.
ECHO = """
def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    return body, content_type
"""
#: The same after 5 ms, so that some requests are under way whenever one looks.
BUSY_ECHO = """
import time

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    time.sleep(0.005)
    return body, content_type
"""


def python_model(folder: Path, code: str, *, model_yaml: str = "") -> Path:
    """An artifact with `code/inference.py`; `model_yaml` adds batching and the like."""
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "inference.py").write_text(textwrap.dedent(code))
    if model_yaml:
        (folder / "model.yaml").write_text(textwrap.dedent(model_yaml))
    return folder


def pipeline(folder: Path, declared: str, code: str = "") -> Path:
    """An artifact with `pipeline.yaml`, and `code/steps.py` where there is code."""
    (folder / "code").mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(declared)
    if code:
        (folder / "code" / "steps.py").write_text(code)
    return folder
