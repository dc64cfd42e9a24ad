"""Markdown tables of what benchmarks printed last: `python -m bench.tables FILE... [--into PAGE]`.

Reads the lines of JSON in the files, whatever stands around them, and prints tables of each that it
knows. With `--into` they replace what lies between `<!-- figures: NAME -->` and `<!-- end -->` on
that page: its figures are never typed by hand. Under the tables stands the machine that they were
seen on; a ratio says nothing without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from bench.tables import models, offline, regions, serving
from bench.tables.words import Line, seen_on

TABLES: dict[str, Callable[[Line], list[str]]] = {
    "bert": models.bert,
    "colocated": offline.colocated,
    "gateway": serving.gateway,
    "gateways": serving.gateways,
    "intent": serving.intent,
    "lor": serving.lor,
    "multi_model": models.multi_model,
    "overhead": serving.overhead,
    "regions": regions.regions,
    "regions_live": regions.regions_live,
    "regions_twin": regions.regions_twin,
    "spelling": models.spelling,
    "transform": offline.transform,
}


def text_of(line: Line) -> str:
    """All that a page shows of one benchmark."""
    return "\n\n".join([*TABLES[line["bench"]](line), seen_on(line)])


def lines_in(text: str) -> list[Line]:
    """Closing lines of benchmarks that have tables."""
    found = [json.loads(each) for each in text.splitlines() if each.startswith('{"bench"')]
    return [line for line in found if line["bench"] in TABLES]


def put_into(page: str, line: Line) -> str:
    """Raises ValueError where the page has no place for this benchmark."""
    begin = f"<!-- figures: {line['bench']} -->"
    place = re.compile(f"{re.escape(begin)}.*?<!-- end -->", re.DOTALL)
    if not place.search(page):
        raise ValueError(f"the page has no place marked {begin}")
    filled = f"{begin}\n{text_of(line)}\n<!-- end -->"
    return place.sub(lambda _: filled, page, count=1)
