"""The second half of docs/howto is typed, in order, as it stands there: see `test_pages.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.kit.pages import typed_pages

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


@pytest.mark.parametrize("page", typed_pages()[1::2])
def test_every_block_of_a_page_in_this_half_does_what_the_page_says(
    page: str, type_page: Callable[[str], None]
) -> None:
    type_page(page)
