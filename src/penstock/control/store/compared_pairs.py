"""What agreements have compared, in the store: steps inside a transaction, as in `rows.py`.

One row for the latest rollout with an agreement of an endpoint, of each of its inference components
and of each of its target models. A row leaves with what it is of, so what is created anew under a
name begins at nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from sqlalchemy import Connection, RowMapping, and_, delete, func, insert, select

from penstock.control.database import schema
from penstock.control.database.mapping import from_json, record_of, to_json
from penstock.control.store import rows
from penstock.control.store.records import COMPONENT, ENDPOINT
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec
from penstock.metrics.item_failures import readable

_TABLE = schema.compared_pairs
_COUNTS = dict[str, Annotated[int, msgspec.Meta(ge=0)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPairs:
    """The pairs of one rollout. Names are as they were created."""

    endpoint: str
    component: str = ""  #: whose rollout; "": the endpoint's own, or a target model's
    model: str = ""  #: the target model whose rollout; "": none's
    rollout: int  #: its number
    spec: AgreementSpec
    counts: Mapping[str, int]  #: outcome -> pairs, as in `core/rollout/agreement.py`


def everything(db: Connection) -> list[ComparedPairs]:
    """The rows that can be read."""
    endpoints, components = schema.endpoints.c, schema.inference_components.c
    found = db.execute(
        select(
            _TABLE,
            endpoints.name.label("endpoint"),
            func.coalesce(components.name, _TABLE.c.component_key).label("component"),
        )
        .join(schema.endpoints, endpoints.key == _TABLE.c.endpoint_key)
        .outerjoin(schema.inference_components, components.key == _TABLE.c.component_key)
        .order_by(_TABLE.c.endpoint_key, _TABLE.c.component_key, _TABLE.c.model)
    )
    return readable(
        "compared-rows",
        found.mappings(),
        _read,
        lambda row: f"{row['endpoint']} {row['component']}{row['model']}",
    )


def put(db: Connection, wanted: Sequence[ComparedPairs]) -> None:
    """Writes these rows in place of what is there of the same things; nothing of what is gone."""
    for one in wanted:
        key, component_key = one.endpoint.lower(), one.component.lower()
        if rows.find(db, ENDPOINT, key) is None:
            continue
        if component_key:
            component = rows.find(db, COMPONENT, component_key)
            if component is None or component["endpoint_key"] != key:
                continue
        here = {"endpoint_key": key, "component_key": component_key, "model": one.model}
        db.execute(delete(_TABLE).where(and_(*(_TABLE.c[name] == here[name] for name in here))))
        values = {"rollout": one.rollout, "spec": to_json(one.spec), "counts": to_json(one.counts)}
        db.execute(insert(_TABLE).values(**here, **values))


def forget_component(db: Connection, name: str) -> None:
    """The component is gone."""
    db.execute(delete(_TABLE).where(_TABLE.c.component_key == name.lower()))


def _read(row: RowMapping) -> ComparedPairs:
    counts = msgspec.json.decode(row["counts"], type=_COUNTS)
    AgreementCounts.of(counts)  # raises TypeError for an outcome that this version does not know
    return record_of(ComparedPairs, row, spec=from_json(AgreementSpec, row["spec"]), counts=counts)
