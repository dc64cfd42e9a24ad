"""README.md and the first half of docs/howto are typed, in order, as they stand there.

What becomes of a block is said in `tests/kit/pages.py`; `tests/kit/page_run.py` runs one page by
hand. The other half is in a file of its own, so that two halves run at once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.kit.pages import HOWTO, typed_pages

PAGES = ["README.md", *typed_pages()[::2]]

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_does_what_the_page_says(
    page: str, type_page: Callable[[str], None]
) -> None:
    type_page(page)


def test_both_halves_are_all_pages() -> None:
    assert len(PAGES) - 1 + len(typed_pages()[1::2]) == len(typed_pages()) <= len(HOWTO)
