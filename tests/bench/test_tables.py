"""Tables of what benchmarks printed, and their places on the page of benchmarks."""

from __future__ import annotations

import json

import pytest
from bench.report import ROOT
from bench.tables import TABLES, lines_in, put_into, text_of

PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def spread(median: float) -> dict[str, float]:
    return {"median": median, "min": median - 1, "max": median + 1, "samples": 3}


LINE = {
    "bench": "overhead",
    "p50_ms_at_60": 7.61,
    "p99_ms_at_60": 65.04,
    "p99_calm_ms_at_60": 9.0,
    "of_best_bare": 0.7,
    "by_connections": {
        "8": {
            "served_ratio": 0.5,
            "served_rps": spread(4000),
            "bare_rps": spread(8000.4),
            "batch_rows": spread(3.21),
            "p99_ms": spread(2.5),
        }
    },
    "bare_rps_by_rows": {"1": 5000, "32": 13000},
    "others_cores": 0.02,
    "took_s": 150,
    "versions": {"python": "3.11.7"},
    "hardware": {"cpu": "A", "cores": 2, "instruction_set": "AVX2", "memory_gib": 4.0},
    "commit": "abc",
    "command": "make bench NAME=overhead",
}
TEXT = """\
| connections | served rows/s | rows a batch | bare rows/s | ratio | P99 ms |
| --- | --- | --- | --- | --- | --- |
| 8 | 4,000 (3,999 to 4,001) | 3.2 | 8,000 (7,999 to 8,001) | 0.50 | 2.5 |

At 60 % of the most: P50 7.6 ms, P99 65.0 ms (9.0 ms of requests that met no stall of the \
machine). Bare, rows/s by rows a batch: 5,000 at 1, 13,000 at 32; of the fastest, 0.70 is served.

Seen on: A, 2 cores, AVX2, 4.0 GiB; python 3.11.7; commit abc. Other programs took 0.02 cores. \
Repeat, in 150 s: `make bench NAME=overhead`."""


def test_a_closing_line_becomes_a_table_and_the_machine_that_it_was_seen_on() -> None:
    assert text_of(LINE) == TEXT


def test_closing_lines_are_found_among_other_output() -> None:
    output = f"served 4 rows/s\n{json.dumps(LINE)}\n{json.dumps({'bench': 'gpu'})}\n"
    assert lines_in(output) == [LINE]


def test_a_table_takes_the_place_of_the_one_before() -> None:
    page = "a\n<!-- figures: overhead -->\nold\n<!-- end -->\nb\n<!-- figures: t5 -->\n<!-- end -->"
    filled = put_into(page, LINE)
    assert filled == page.replace("old", TEXT)
    assert put_into(filled, LINE) == filled


def test_a_page_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place marked <!-- figures: overhead -->"):
        put_into("nothing", LINE)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_a_place_for_every_table(name: str) -> None:
    assert PAGE.count(f"<!-- figures: {name} -->\n") == 1
