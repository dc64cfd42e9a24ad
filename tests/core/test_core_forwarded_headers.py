"""Which headers a model sees."""

from __future__ import annotations

import pytest

from penstock.core.request.forwarded_headers import FORWARDED_BYTES_MAX, HeaderForwarding
from penstock.errors import CallerError

HEADERS = [("X-Tenant", "a"), ("x-tenant-id", "b"), ("Authorization", "Bearer k"), ("Accept", "c")]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["x-tenant"], {"X-Tenant": "a"}),
        (["X-TENANT*"], {"X-Tenant": "a", "x-tenant-id": "b"}),
        (["x-tenant-*", "accept"], {"x-tenant-id": "b", "Accept": "c"}),
        (["nothing"], {}),
        (["*"], {"X-Tenant": "a", "x-tenant-id": "b", "Accept": "c"}),  # never credentials
        (["authorization"], {}),
    ],
)
def test_headers_are_named_or_their_beginnings(names: list[str], chosen: dict[str, str]) -> None:
    assert HeaderForwarding(names).chosen(HEADERS) == chosen


def test_values_of_one_name_are_joined() -> None:
    assert HeaderForwarding(["x"]).chosen([("x", "1"), ("x", "2")]) == {"x": "1,2"}


def test_binary_values_are_passed_on_as_text_or_refused_by_name() -> None:
    forwarding = HeaderForwarding(["*"])
    given = [("a-bin", "ä".encode()), ("a-bin", b"b"), ("grpc-trace-bin", b"\xff")]
    assert forwarding.chosen(given) == {"a-bin": "ä,b"}
    with pytest.raises(CallerError, match="'b-bin' has bytes that are no text") as caught:
        forwarding.chosen([("b-bin", b"\xff")])
    assert caught.value.code == "header-not-text"
    assert HeaderForwarding(["a-bin"]).chosen([("b-bin", b"\xff")]) == {}


@pytest.mark.parametrize("name", ["priority", "timeout", "headers", "sequence_id", "triton_x"])
def test_names_that_triton_keeps_are_refused(name: str) -> None:
    with pytest.raises(CallerError, match="parameter of Triton's own"):
        HeaderForwarding(["*"]).chosen([(name, "1")])


def test_they_are_bounded() -> None:
    most = "a" * (FORWARDED_BYTES_MAX - 1)
    assert HeaderForwarding(["x"]).chosen([("x", most)]) == {"x": most}
    with pytest.raises(CallerError) as caught:
        HeaderForwarding(["x"]).chosen([("x", "a" * FORWARDED_BYTES_MAX)])
    assert (caught.value.code, caught.value.status) == ("headers-too-large", 431)


def test_it_is_off_without_names() -> None:
    assert not HeaderForwarding(()).on
    assert HeaderForwarding(()).chosen(HEADERS) == {}


@pytest.mark.parametrize("name", ["", "x*y", "**", '["x-a"]', "x a", "x-ä", "x-a,x-b"])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(CallerError, match=r"listen\.forward_headers"):
        HeaderForwarding([name])
