"""What the comparison with NVIDIA's server counts as a difference, and that its list fits its rows.

The comparison itself starts two servers and is a benchmark: `make bench NAME=triton_answers`.
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import Any

from bench.triton.differences import DIFFERENCES
from bench.triton.rows import LISTED, SAME, UNLISTED, Difference, Row, judge
from bench.triton_answers import CASES, names

CODE_500 = Difference("codes", "400", "500", "since it is so", ("model: *wrong*",))


def row(name: str, theirs: Any, ours: Any, view: str = "") -> Row:
    return Row(name, theirs, ours, view)


def test_codes_and_answers_decide() -> None:
    rows = [
        row("model: right (http)", [200, {"a": 1}], [200, {"a": 1}]),
        row("model: other (http)", [200, {"a": 1}], [200, {"a": 2}]),
        row("model: wrong (http)", [500, "an error"], [400, "an error"]),
        row("model: dead (http)", ["the server died", ""], [200, {}]),
    ]
    judged = judge(rows, [CODE_500])
    assert [verdict for _, verdict, _ in judged] == [SAME, UNLISTED, LISTED, UNLISTED]
    assert [by for _, _, by in judged] == [None, None, CODE_500, None]


def test_a_view_leaves_out_what_is_each_servers_own() -> None:
    theirs = {"model_stats": [{"name": "m", "version": "1", "inference_count": "3", "x": 1}]}
    ours = {"model_stats": [{"name": "m", "version": "1", "inference_count": 3, "x": 2}]}
    assert row("m: counts (http)", [200, theirs], [200, ours], "counts").is_same
    assert not row("m: counts (http)", [200, theirs], [200, ours]).is_same
    assert not row("m: counts (http)", [200, theirs], [400, "an error"], "counts").is_same


def test_numbers_of_fp32_are_the_same_with_other_digits() -> None:
    def told(value: Any, kind: str = "FP32") -> Any:
        return [200, {"outputs": [{"name": "y", "datatype": kind, "data": [value]}]}]

    assert row("m: digits (http)", told(0.10000000149011612), told(0.1)).is_same
    assert not row("m: digits (http)", told(0.1), told(0.2)).is_same
    assert not row("m: digits (http)", told(0.10000000149011612, "FP64"), told(0.1, "FP64")).is_same


def test_repositories_are_many_and_each_row_has_a_name_of_its_own() -> None:
    counted = Counter(name for case in CASES for name in names(case))
    assert [name for name, times in counted.items() if times > 1] == []
    assert len(CASES) >= 40
    models = Counter(name for case in CASES for name in (case.name, *case.others))
    assert [name for name, times in models.items() if times > 1] == []  # as one server has all


def test_each_listed_difference_covers_rows_that_are_there() -> None:
    rows = [name for case in CASES for name in names(case)]
    unused = [
        pattern
        for one in DIFFERENCES
        for pattern in one.rows
        if not any(fnmatchcase(name, pattern) for name in rows)
    ]
    assert unused == []
