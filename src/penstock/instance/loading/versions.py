"""Loads the other versions of a model beside the one that is served by default."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

from penstock.cleanup import shielded
from penstock.errors import ModelError, PenstockError
from penstock.instance.engines.batches import Batches
from penstock.instance.engines.cached import CachedBatches, batches_for
from penstock.instance.engines.versions import VersionedEngine
from penstock.instance.loading.loaded import Loaded
from penstock.runtimes.base import LaneListener, LoadContext

Start = Callable[[LoadContext, LaneListener], Awaitable[Loaded]]


async def with_versions(context: LoadContext, listener: LaneListener, start: Start) -> Loaded:
    """Starts a model in all versions. Raises the exceptions of `start`; then nothing is left."""
    description = context.description
    others = description.other_versions
    loaded = await start(_of(context, description.file, description.version), listener)
    try:
        engines = {description.version: _engine(loaded)}
        for version, file in others.items():
            try:
                other = await start(_of(context, file, version), listener)
            except PenstockError as error:
                error.message = f"version {version}: {error.message}"
                raise
            loaded.versions.append(other)
            engines[version] = _engine(other)
    except BaseException:
        await shielded(loaded.close())
        raise
    engine = VersionedEngine(engines, description.version)
    loaded.work = batches_for(context, engine)
    loaded.taken = engine.taken
    loaded.described["versions"] = sorted(engines, key=int)
    return loaded


def _engine(loaded: Loaded) -> object:
    if not isinstance(loaded.work, Batches) or type(loaded.work) not in (Batches, CachedBatches):
        raise ModelError(
            "versions-not-stateless",
            "several versions are served of models whose requests stand alone: not of one with "
            "sequence_batching, or with decoupled responses",
            hint="Choose one: version_policy { specific { versions: [1] } } in config.pbtxt.",
        )
    return loaded.work.engine


def _of(context: LoadContext, file: str, version: str) -> LoadContext:
    description = dataclasses.replace(
        context.description, file=file, version=version, other_versions={}
    )
    return dataclasses.replace(context, description=description)
