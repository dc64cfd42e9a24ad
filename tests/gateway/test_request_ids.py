"""Ids of requests: what clients see, and which request an id names."""

from __future__ import annotations

import uuid

import pytest
from tests.kit.gateway import PREFIX

from penstock.gateway.request_id import RequestIds


def test_an_id_is_the_prefix_and_the_running_number_in_twelve_hexadecimal_digits() -> None:
    ids = RequestIds(PREFIX)
    assert [ids.next(), ids.next(), ids.count] == [1, 2, 2]
    assert ids.text(1) == "00000000-0000-4000-8000-000000000001"
    assert ids.text(0xABCDEF) == "00000000-0000-4000-8000-000000abcdef"
    assert ids.prefix_bytes == PREFIX.encode()


def test_an_id_has_the_shape_of_a_uuid_and_each_process_its_own() -> None:
    one, other = RequestIds(), RequestIds()
    text = one.text(one.next())
    assert (str(uuid.UUID(text)), uuid.UUID(text).version) == (text, 4)
    assert one.prefix != other.prefix
    assert other.number(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("00000000-0000-4000-8000-000000000001", 1),
        ("00000000-0000-4000-8000-000000ABCDEF", 0xABCDEF),
        ("00000000-0000-4000-8000-ffffffffffff", (1 << 48) - 1),
        ("00000000-0000-4000-8000-00000000001", None),
        ("00000000-0000-4000-8000-0000000000001", None),
        ("00000000-0000-4000-8000-00000000000g", None),
        ("00000000-0000-4000-8000-", None),
        ("00000000-0000-4000-9000-000000000001", None),
        ("000000000001", None),
        ("", None),
    ],
)
def test_an_id_names_its_number_and_any_other_text_none(text: str, number: int | None) -> None:
    assert RequestIds(PREFIX).number(text) == number


def test_the_case_of_letters_in_an_id_does_not_matter() -> None:
    ids = RequestIds("abcdef01-0000-4000-8000-")
    assert ids.number("ABCDEF01-0000-4000-8000-00000000000A") == 10
