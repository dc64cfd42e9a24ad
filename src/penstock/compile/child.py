"""The error of a compile that ran as a child process."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.core.blame.crashed_instances import is_crash
from penstock.errors import ModelError, PenstockError, from_dict

_WORDS_CHARS_MAX = 2000


def child_failure(code: int, output: Sequence[str]) -> PenstockError:
    """The error: the last line of output as JSON, unless the process died in another way."""
    try:
        return from_dict(json.loads(output[-1]))
    except (ValueError, IndexError, AttributeError):
        words = "".join(output)[-_WORDS_CHARS_MAX:].strip()
        story = f"compiling ended with status {code}: {words or 'no output'}"
        if not is_crash(code):
            hint = "It is tried again where somebody waits for the model; mostly memory ran out."
            return ModelError("process-killed", story, hint=hint)
        return ModelError(
            "compile-crashed", story, hint="Run 'penstock compile' on the model by hand."
        )
