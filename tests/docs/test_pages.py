"""Every block of README.md and of docs/howto is run, in order, as it stands there.

What becomes of a block is said in `tests/kit/pages.py`; `tests/kit/page_run.py` runs one page by
hand. Tests of the rules themselves are in `test_page_rules.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.pages import NEEDS, ROOT, SET_UP, blocks, head

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def types_anything(page: Path) -> bool:
    """Whether it types anything."""
    return any(block.kind in {"shell", "terminal", "python"} for block in blocks(page))


@pytest.mark.system
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [page for page in PAGES if types_anything(page)], ids=name_of)
def test_every_block_of_a_page_does_what_the_page_says(
    page: Path, record_property: Callable[[str, object], None]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.page_run", name_of(page)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    record_property("page", json.dumps({"page": name_of(page)} | json.loads(last(done.stdout))))


def last(text: str) -> str:
    return text.strip().rpartition("\n")[2]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_sets_the_same_things_first_and_says_what_it_needs(page: Path) -> None:
    """A reader who knows one page knows how to follow all others."""
    found = blocks(page)
    typed = [block for block in found if block.kind in {"shell", "python", "check"}]
    if page.name != "README.md" and any(block.kind in {"shell", "python"} for block in found):
        assert typed[0].text == SET_UP
    for need in {block.words["needs"] for block in found if "needs" in block.words}:
        assert re.search(NEEDS[need], page.read_text(encoding="utf-8")), need


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_is_passed_over_because_of_how_it_is_written(page: Path) -> None:
    """A block that looks like a command has a language that is run."""
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(blocks(page))
    unnamed = [block for block in blocks(page) if not block.language]
    assert not [b.where for b in unnamed if re.match(r"(\$ )?(penstock|pip|curl|aws) ", b.text)]
    assert not re.search(r"^    (penstock|pip|curl) ", text, re.MULTILINE), "indented commands"
    assert head(page).startswith("# ")
