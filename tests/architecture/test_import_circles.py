"""No modules import one another in a circle: what a file needs stands below it.

Imports for type checkers alone and imports within functions tie as others do, and count. There is
no list of exceptions. What both ends of a tie need moves to a module below the two; or the lower
one names what it needs as a Protocol; or the two are one subject, and become one file.
"""

from __future__ import annotations

from pathlib import Path

import grimp
import pytest


def _circles(graph: grimp.ImportGraph) -> list[str]:
    """Each group of modules that reach one another, with the lines that tie them."""
    below = {module: graph.find_upstream_modules(module) for module in graph.modules}
    found, seen = [], set[str]()
    for module in sorted(below):
        circle = {other for other in below[module] if module in below[other]}
        if circle and module not in seen:
            seen |= circle | {module}
            found.append(_told(graph, circle | {module}))
    return found


def _told(graph: grimp.ImportGraph, circle: set[str]) -> str:
    ties = [
        f"  {importer}:{line['line_number']}: {line['line_contents']}"
        for importer in sorted(circle)
        for imported in sorted(graph.find_modules_directly_imported_by(importer) & circle)
        for line in graph.get_import_details(importer=importer, imported=imported)
    ]
    return "\n".join([f"a circle of {len(circle)}: {', '.join(sorted(circle))}", *ties])


def test_no_modules_import_one_another_in_a_circle() -> None:
    circles = _circles(grimp.build_graph("penstock", cache_dir=None))
    assert not circles, "\n" + "\n".join(circles)


def test_a_circle_is_told_with_every_import_that_ties_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "ring"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "a": "from ring.b import B\n",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ring import c\n",
        "c": "def late():\n    from ring.a import A\n    return A\n",
        "above": "import ring.a\n",
        "below": "",
    }.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _circles(grimp.build_graph("ring", cache_dir=None)) == [
        "a circle of 3: ring.a, ring.b, ring.c\n"
        "  ring.a:1: from ring.b import B\n"
        "  ring.b:3: from ring import c\n"
        "  ring.c:2: from ring.a import A"
    ]
