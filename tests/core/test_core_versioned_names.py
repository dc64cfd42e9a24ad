"""Names that follow from content."""

from __future__ import annotations

import pytest

from penstock.core.apply.plan import ENDPOINT_NAME, is_version_of, versioned_name


def test_the_same_content_has_the_same_name_and_other_content_another() -> None:
    assert versioned_name("shop", "a") == "shop-ca978112ca"
    assert versioned_name("shop", "b") == "shop-3e23e81600"


def test_a_long_name_leaves_room_for_the_digest() -> None:
    name = versioned_name("x" * 63, "a")
    assert (name, len(name)) == ("x" * 52 + "-ca978112ca", 63)
    assert is_version_of(name, "x" * 63)


@pytest.mark.parametrize(
    ("name", "endpoint", "is_version"),
    [
        ("shop-ca978112ca", "shop", True),
        ("shop", "shop", False),
        ("shop-", "shop", False),
        ("shop-ca978112c", "shop", False),
        ("shop-ca978112ca0", "shop", False),
        ("shop-CA978112CA", "shop", False),
        ("shop-eu-ca978112ca", "shop", False),
        ("shop-eu-ca978112ca", "shop-eu", True),
        ("shop-ca978112ca\n", "shop", False),
    ],
)
def test_a_version_of_an_endpoint_is_its_name_and_a_digest(
    name: str, endpoint: str, is_version: bool
) -> None:
    assert is_version_of(name, endpoint) is is_version


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        *(("a", True), ("a-b", True), ("a--b", True), ("a" * 63, True), ("a" * 64, False)),
        *(("", False), ("-a", False), ("a-", False), ("a_b", False), ("a\n", False), ("é", False)),
    ],
)
def test_an_endpoint_is_named_as_sagemaker_allows(name: str, allowed: bool) -> None:
    assert (ENDPOINT_NAME.fullmatch(name) is not None) is allowed
