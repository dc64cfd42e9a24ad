"""How README.md and the pages of docs/howto are written, so that all of them can be followed."""

from __future__ import annotations

import re

import pytest
from tests.kit import page_checks
from tests.kit.pages import HOWTO, NEEDS, ROOT, SET_UP, blocks, head

PAGES = ["README.md", *HOWTO]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_sets_the_same_things_first_and_says_what_it_needs(page: str) -> None:
    """A reader who knows one page knows how to follow all others."""
    found = blocks(ROOT / page)
    typed = [block for block in found if block.kind in {"shell", "python"}]
    if typed and page != "README.md":
        assert typed[0].text == SET_UP
    for need in {block.words["needs"] for block in found if "needs" in block.words}:
        assert re.search(NEEDS[need], (ROOT / page).read_text(encoding="utf-8")), need


@pytest.mark.parametrize("page", PAGES)
def test_no_block_is_passed_over_because_of_how_it_is_written(page: str) -> None:
    """A block that looks like a command has a language that is run."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = blocks(ROOT / page)
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(found)
    unnamed = [
        one for one in found if one.kind == "read" and one.language in {"", "console", "text"}
    ]
    assert not [b.where for b in unnamed if re.match(r"(\$ )?(penstock|pip|curl|aws) ", b.text)]
    assert not re.search(r"^    (penstock|pip|curl) ", text, re.MULTILINE), "indented commands"
    assert head(ROOT / page).startswith("# ")


@pytest.mark.parametrize("page", PAGES)
def test_a_block_of_a_format_is_of_that_format(page: str) -> None:
    """Also where nothing on the page is typed."""
    for block in blocks(ROOT / page):
        if block.kind == "read":
            page_checks.read(block)


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "howto" / "README.md").read_text(encoding="utf-8")
    names = {page.rpartition("/")[2] for page in HOWTO} - {"README.md"}
    assert names - set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == set()
