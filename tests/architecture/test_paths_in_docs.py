"""Docs name files, and the files are there: a page that leads nowhere is worse than none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.kit.pages import blocks

ROOT = Path(__file__).resolve().parents[2]
#: Decisions and the changelog tell of their day, and files that were.
PAGES = sorted(
    page
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if page.parent.name != "decisions"
)
#: `folder/file.py` in backticks, and the target of a link, without its part after #.
NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|toml|md|sh))`")
LINKED = re.compile(r"\]\((?!\w+:)([^)#\s]+)(?:#[^)]*)?\)")


def is_there(named: str) -> bool:
    if named.startswith("code/"):
        return True  # of an artifact: the user's own
    return any((base / named).is_file() for base in (ROOT, ROOT / "src" / "penstock"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """Below the repository's root, or below src/penstock; or the page shows it."""
    text = page.read_text(encoding="utf-8")
    shown = {block.file for block in blocks(page) if block.kind == "file"}
    missing = [named for named in NAMED.findall(text) if not is_there(named) and named not in shown]
    missing += [link for link in LINKED.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_the_walk_of_a_request_names_a_file_in_each_step() -> None:
    lines = (ROOT / "docs" / "request.md").read_text(encoding="utf-8").splitlines()
    steps = [line for line in lines if re.match(r"\| \d+ \|", line)]
    assert [int(step.split("|")[1]) for step in steps] == list(range(1, len(steps) + 1))
    assert len(steps) > 20
    assert all(NAMED.search(step.split("|")[3]) for step in steps)
