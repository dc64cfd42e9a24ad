"""Packages that an environment gets from the server's own, as copies.

What is copied needs no network, and is the very build that the server has: a library that proves a
model and one that serves it can't differ.
"""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Iterable
from pathlib import Path

from penstock.runtimes.environments.requirements import canonical, parsed


def with_needed(names: Iterable[str]) -> tuple[str, ...]:
    """`NAME==VERSION` of the server's own packages with these names, and of all that they need."""
    found: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = canonical(waiting.pop())
        if name in found:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # needed on other platforms
        found[name] = distribution.version.partition("+")[0]
        waiting += _needs(distribution)
    return tuple(f"{name}=={version}" for name, version in sorted(found.items()))


def _needs(distribution: importlib.metadata.Distribution) -> list[str]:
    """The names of its requirements, without those of its extras."""
    names = []
    for line in distribution.requires or ():
        try:
            wanted = parsed(line)
        except ValueError:
            continue  # written as nothing that we install is
        if "extra" not in wanted.marker:
            names.append(wanted.name)
    return names


def copy_distribution(name: str, site: Path) -> bool:
    """Copies a package from the server's own environment. False: its files are not known there."""
    distribution = importlib.metadata.distribution(name)
    files = distribution.files
    for file in files or ():
        if ".." in file.parts or file.suffix == ".pyc":
            continue  # scripts
        source, target = Path(str(distribution.locate_file(file))), site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    return bool(files)
