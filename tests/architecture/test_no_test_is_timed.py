"""Property tests pass on a slow machine, too."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def test_properties_have_no_deadline_and_may_be_slow_to_generate() -> None:
    """Of a test with neither setting the library took 200 ms an example, and a second for its
    first inputs, as the measure: beside other work it failed."""
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
