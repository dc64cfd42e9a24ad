"""The duplicates of a shop, end to end: offers, candidates, groups, the page; and the command."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from types import ModuleType

import pytest
from tests.kit.servers import EXAMPLES, ROOT

MODULES = ("shop", "candidates", "clusters", "page")


@dataclass(frozen=True)
class Example:
    shop: ModuleType
    candidates: ModuleType
    clusters: ModuleType
    page: ModuleType


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    """The example's own modules, which are no package and find each other by their folders."""
    before, kept = sys.path[:], set(sys.modules)
    # Another example's files may have the same names.
    aside = {name: sys.modules.pop(name) for name in _of_examples(kept)}
    sys.path[:0] = [str(EXAMPLES / "duplicates"), str(EXAMPLES / "query_intent")]
    try:
        yield Example(*(importlib.import_module(name) for name in MODULES))
    finally:
        sys.path[:] = before
        for name in _of_examples(sys.modules):
            del sys.modules[name]
        sys.modules.update(aside)


def _of_examples(names: Iterable[str]) -> list[str]:
    files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in names}
    return [name for name, file in files.items() if file.startswith(str(EXAMPLES))]


def test_one_seed_makes_one_shop(example: Example) -> None:
    make = example.shop.make_offers
    assert make(50, 3) == make(50, 3) != make(50, 4)
    offers = make(50, 3)
    assert [offer.number for offer in offers] == list(range(len(offers)))
    assert {offer.product for offer in offers} == set(range(50))


def test_the_truth_is_every_two_offers_of_a_product(example: Example) -> None:
    offer = example.shop.Offer
    offers = [offer(0, "a", 7), offer(1, "b", 8), offer(2, "c", 7), offer(3, "d", 7)]
    assert example.shop.true_pairs(offers) == {(0, 2), (0, 3), (2, 3)}


def test_candidates_hold_nearly_all_true_pairs_and_few_others(example: Example) -> None:
    offers = example.shop.make_offers(300)
    true = example.shop.true_pairs(offers)
    pairs = example.candidates.candidates([offer.title for offer in offers])
    assert pairs == sorted(set(pairs))
    assert all(one < other for one, other in pairs)
    found = example.clusters.judged(set(pairs), true)
    assert found.recall > 0.98
    assert len(pairs) <= example.candidates.NEIGHBOURS * len(offers)


def test_candidates_of_next_to_nothing(example: Example) -> None:
    assert example.candidates.candidates([]) == []
    assert example.candidates.candidates(["kettle"]) == []
    assert example.candidates.candidates(["", "!", "kettle", "Kettles", "rake"]) == [(2, 3)]


def test_groups_are_joined_by_pairs_that_are_sure_enough(example: Example) -> None:
    groups_of, judged = example.clusters.groups_of, example.clusters.judged
    pairs = [(0, 1), (1, 2), (3, 4), (4, 5)]
    groups = groups_of(7, pairs, [0.9, 0.8, 0.95, 0.79], 0.8)
    assert groups == [[0, 1, 2], [3, 4]]
    said = example.clusters.pairs_within(groups)
    assert said == {(0, 1), (0, 2), (1, 2), (3, 4)}
    found = judged(said, {(0, 1), (3, 4), (5, 6)})
    assert (found.right, found.wrong, found.missed) == (2, 2, 1)
    assert (found.precision, round(found.recall, 3)) == (0.5, 0.667)
    assert judged(set(), set()).precision == 0.0


def test_how_sure_is_the_probability_of_yes(example: Example) -> None:
    sureness = example.clusters.sureness
    assert sureness({"duplicate": {"label": "yes", "score": 0.75}}) == 0.75
    assert sureness({"duplicate": {"label": "no", "score": 0.75}}) == 0.25


class _Tags(HTMLParser):
    """Tags that are open, and what the page would fetch."""

    _VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else_and_shows_titles_as_text(example: Example) -> None:
    offer = example.shop.Offer
    offers = [offer(0, "<b>kettle</b>", 0), offer(1, "kettle", 0), offer(2, "rake & hoe", 1)]
    judged = example.clusters.Judged
    report = example.page.Report(
        offers=offers, pairs=[(0, 1), (1, 2)], scores=[0.97, 0.4], groups=[[0, 1]], threshold=0.8,
        blocking=judged(1, 1, 0), clusters=judged(1, 0, 0), job="j", job_s=2.0, cost=0.5,
    )  # fmt: skip
    text = example.page.page(report)
    tags = _Tags()
    tags.feed(text)
    tags.close()
    assert (tags.open, tags.fetched) == ([], [])
    assert "&lt;b&gt;kettle&lt;/b&gt;" in text
    assert "<b>kettle" not in text
    assert "rake &amp; hoe" in text
    assert "1 groups of duplicates among 3 offers" in text


@pytest.mark.system
@pytest.mark.integration
@pytest.mark.timeout(400)
def test_a_schedule_begins_the_job_and_the_command_tells_the_groups(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The shop is small, so that one wrong group is several points of precision."""
    out = tmp_path_factory.mktemp("duplicates")
    argv = [sys.executable, str(EXAMPLES / "duplicates" / "run.py"), "--schedule"]
    argv += ["--products", "60", "--out", str(out)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "began by itself" in done.stdout
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["blocking_recall"] > 0.98
    assert told["precision"] > 0.8
    assert told["recall"] > 0.85
    groups = [json.loads(line) for line in (out / "groups.jsonl").read_text().splitlines()]
    assert len(groups) == told["groups"] > 10
    assert f"{told['groups']} groups of duplicates" in (out / "report.html").read_text()
