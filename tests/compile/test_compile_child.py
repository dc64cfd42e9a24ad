"""What is told of a compile that ran as a child process and said nothing."""

from __future__ import annotations

import pytest

from penstock.compile.child import child_failure
from penstock.core.deployment.slot_retries import is_permanent


@pytest.mark.parametrize(
    ("status", "code", "permanent"),
    [(-9, "process-killed", False), (-11, "compile-crashed", True), (3, "compile-crashed", True)],
)
def test_one_that_was_killed_from_outside_says_nothing_of_the_model(
    status: int, code: str, permanent: bool
) -> None:
    error = child_failure(status, ["half way\n"])
    assert (error.code, is_permanent(error)) == (code, permanent)
    assert f"status {status}: half way" in error.message
