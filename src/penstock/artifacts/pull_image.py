"""Brings a model's image to this machine, where the operator allows that.

An image is pulled once for all instances of a machine: they wait for one another, and whoever comes
later finds it.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.detection.images import image_hint
from penstock.artifacts.files.budget import Budget
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
from penstock.clock import Clock
from penstock.core.machine.containers import NONE_ANSWERS
from penstock.core.machine.images import may_pull, route_of
from penstock.runtimes.container.engine import decide, find_image, silent
from penstock.runtimes.container.images import pull


def pulled_dir(cache_dir: Path) -> Path:
    """The folder of the files about pulled images."""
    return cache_dir / "images"


def bring_image(
    source: ArtifactSource,
    cache: ArtifactCache,
    settings: ArtifactSettings,
    *,
    cancelled: threading.Event | None,
    clock: Clock | None,
    log: Callable[[str], None],
) -> None:
    """Returns once the image is here, or is not to be brought. Raises CallerError
    (`image-not-pulled`), and NotNowError where the engine does not answer (`engine-silent`) or
    nobody waits any more."""
    image, containers = source.image, settings.containers
    if not may_pull(image, containers.pull).allowed:
        return
    if image_hint(image, settings.image_commands).kind in ("process", "local"):
        return
    if find_image(containers, source.image_id or image) is not None:
        return
    engine = decide(containers)
    if engine.reason == NONE_ANSWERS:
        raise silent(engine.words)
    program = shutil.which(engine.engine)
    if program is None:
        return
    seconds_max = min(source.seconds_max or settings.seconds_max, settings.seconds_max)
    budget = Budget(
        f"the image {image}",
        bytes_max=settings.bytes_max,
        seconds_max=seconds_max,
        clock=clock,
        cancelled=cancelled,
    )
    with cache.source_lock(hashlib.sha256(f"image {image}".encode()).hexdigest(), budget):
        if find_image(containers, source.image_id or image) is None:
            folder = pulled_dir(cache.root.parent)
            route = route_of(image, containers.registries)
            pull(program, image, folder, route=route, check=budget.check, log=log)
