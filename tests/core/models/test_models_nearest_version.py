"""The version that is taken where the one that is named can't be installed: a literal table."""

from __future__ import annotations

import pytest

from penstock.core.models.nearest_version import nearest_version


@pytest.mark.parametrize(
    ("wanted", "versions", "taken"),
    [
        # the very version, else the newest of its minor version
        ("1.2.1", "1.5.2 1.2.2 1.2.1", "1.2.1"),
        ("1.2.1", "1.5.2 1.3.1 1.2.2", "1.2.2"),
        ("1.2.1", "1.2.10 1.2.9 1.3.0", "1.2.10"),
        ("2.1", "2.1.2 2.1.0 2.0.1", "2.1.2"),
        ("2", "2.1.0 2.0.1 1.9.0", "2.0.1"),
        # else the newest of the next higher minor version, though a lower one is nearer in number
        ("0.23.2", "1.5.2 1.2.2 1.1.3 1.1.2 0.22.9", "1.1.3"),
        ("1.9.0", "2.1.0 2.0.4 1.8.9", "2.0.4"),
        # else the newest of all
        ("9.0.0", "1.2.2 1.5.2 1.4.9", "1.5.2"),
        # a build of a version is that version; releases that are not final do not count
        ("2.6.0", "2.5.1+cpu 2.6.1+cpu 2.7.0+cpu", "2.6.1+cpu"),
        ("1.2.1", "1.2.2rc1 1.2.3.dev4 1.3.0rc1 1.4.0", "1.4.0"),
        ("1.2.1", "1.2.2rc1", ""),
        ("1.2.1", "3", ""),
        ("1.2.1", "", ""),
    ],
)
def test_the_nearest_version_is_taken(wanted: str, versions: str, taken: str) -> None:
    assert nearest_version(wanted, versions.split()) == taken
