"""What the names of images stand for, in the records of endpoints; and which names are in use."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import orjson
from sqlalchemy import Connection, select, update

from penstock.control.database import schema
from penstock.control.database.mapping import from_json, to_json
from penstock.control.store import rows
from penstock.control.store.store import reads, writes
from penstock.core.deployment.deployment import DeploymentSpec

_SPECS = schema.deployments.c


@writes
def keep_images(
    db: Connection, endpoint: str, generation: int, images: Mapping[str, tuple[str, str]]
) -> bool:
    """Records name -> (id, what names it for good) in a generation, where it is not known yet.
    False: nothing has changed. A job's endpoint has no record."""
    where = rows.is_deployment(endpoint.lower(), generation)
    found = db.execute(select(_SPECS.spec, _SPECS.previous).where(where)).mappings().first()
    if found is None:
        return False
    values = {
        column: to_json(from_json(DeploymentSpec, text).with_images(images))
        for column, text in found.items()
        if text is not None
    }
    if values["spec"] == found["spec"]:
        return False
    db.execute(update(schema.deployments).where(where).values(**values))
    return True


@reads
def named_images(db: Connection, images: Collection[str]) -> frozenset[str]:
    """Those of the images that a model, an endpoint, a component, a running job or an
    experiment names."""
    jobs, experiments = schema.transform_jobs.c, schema.inference_experiments.c
    texts = (
        select(schema.models.c.request),
        select(_SPECS.spec),
        select(schema.inference_components.c.active),
        select(schema.inference_components.c.target),
        select(jobs.spec).where(jobs.ended.is_(None)),
        select(experiments.before).where(experiments.completed.is_(None)),
    )
    sought = {image: orjson.dumps(image).decode() for image in images}
    named: set[str] = set()
    for each in texts:
        for text in db.execute(each).scalars():
            named |= {image for image, written in sought.items() if text and written in text}
    return frozenset(named)
