"""Names that a server may be called by, and pages that may call it."""

from __future__ import annotations

import pytest

from penstock.core.request.host_gate import (
    HostGate,
    gate_for,
    is_host,
    normal_origin,
    split_authority,
)


def code(error: object) -> str | None:
    return getattr(error, "code", None)


@pytest.mark.parametrize(
    ("value", "authority"),
    [
        (b"localhost", ("localhost", "")),
        (b"LocalHost.:8080", ("localhost", "8080")),
        (b" 127.0.0.1:1 ", ("127.0.0.1", "1")),
        (b"[::1]:8080", ("::1", "8080")),
        (b"[0:0:0:0:0:0:0:1]", ("::1", "")),
        (b"a_b.example-1", ("a_b.example-1", "")),
        (b"name:", ("name", "")),
        (b"", None),
        (b".", None),
        (b":80", None),
        (b"name:80:80", None),
        (b"name:port", None),
        (b"name:65535", ("name", "65535")),
        (b"name:123456", None),
        (b"x" * 255 + b".:65535", ("x" * 255, "65535")),
        (b"x" * 256 + b".:65535", None),
        (b"user@name", None),
        (b"name/path", None),
        (b"a b", None),
        (b"a,b", None),
        (b"::1", None),
        (b"[::1", None),
        (b"[::1]x", None),
        (b"[127.0.0.1]", None),
        (b"[fe80::1%eth0]", None),
        (b"n\xc3\xa4me", None),
        (b"x" * 300, None),
    ],
)
def test_a_host_is_a_name_or_an_address_and_perhaps_a_port(
    value: bytes, authority: tuple[str, str] | None
) -> None:
    assert split_authority(value) == authority


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("penstock.example", True),
        ("192.0.2.1", True),
        ("2001:db8::1", True),
        ("[2001:db8::1]", True),
        ("penstock.example:8080", False),
        ("[2001:db8::1]:8080", False),
        ("a b", False),
        ("", False),
    ],
)
def test_a_setting_names_a_host_without_a_port(text: str, good: bool) -> None:
    assert is_host(text) == good


def test_unless_said_otherwise_no_address_but_loopbacks_is_this_servers() -> None:
    assert HostGate().host_error(b"127.0.0.1") is None
    assert code(HostGate().host_error(b"192.0.2.1")) == "host-unknown"


ON_LOOPBACK = gate_for("127.0.0.1", machine_names=("box",), asks=False)
BEYOND = gate_for("0.0.0.0", machine_names=("Box.lan",), asks=False)


@pytest.mark.parametrize(
    ("host", "on_loopback", "beyond"),
    [
        (b"localhost:8080", None, None),
        (b"api.localhost", None, None),
        (b"127.0.0.1", None, None),
        (b"127.8.9.10:1", None, None),
        (b"[::1]:8080", None, None),
        (b"[::ffff:127.0.0.1]", None, None),
        (b"0.0.0.0:8080", None, None),
        (b"[::]", None, None),
        (b"192.0.2.7:8080", "host-unknown", None),
        (b"[2001:db8::1]:8080", "host-unknown", None),
        (b"box", "host-unknown", None),
        (b"box.lan:8080", "host-unknown", None),
        (b"localhost.evil.example", "host-unknown", "host-unknown"),
        (b"127.0.0.1.evil.example:8080", "host-unknown", "host-unknown"),
        (b"evil.example:8080", "host-unknown", "host-unknown"),
        (b"2130706433", "host-unknown", "host-unknown"),
        (b"a b", "host-malformed", "host-malformed"),
    ],
)
def test_a_server_without_credentials_is_called_by_its_own_names_alone(
    host: bytes, on_loopback: str | None, beyond: str | None
) -> None:
    """An address can't be made to point elsewhere: where others reach the server each is right."""
    assert code(ON_LOOPBACK.host_error(host)) == on_loopback
    assert code(BEYOND.host_error(host)) == beyond


def test_names_are_added_by_settings_and_the_refusal_says_how() -> None:
    gate = gate_for("192.0.2.1", hosts=("Penstock.example", "[2001:DB8::1]"), asks=False)
    for host in (b"penstock.example:443", b"[2001:db8::1]", b"192.0.2.1:8080"):
        assert gate.host_error(host) is None
    refused = gate.host_error(b"other.example")
    assert refused is not None
    assert (refused.code, refused.status) == ("host-unknown", 421)
    assert "PENSTOCK_LISTEN_HOSTS" in refused.hint
    anything = gate_for("127.0.0.1", hosts=("*",), asks=False)
    assert anything.host_error(b"other.example") is None


def test_where_credentials_are_asked_for_names_and_pages_are_free_until_some_are_listed() -> None:
    free = gate_for("127.0.0.1", asks=True)
    assert free.host_error(b"public.example") is None
    assert free.page_error(b"POST", b"public.example", b"https://other.example", None, None) is None
    listed, origins = ("public.example",), ("https://page.example",)
    narrow = gate_for("127.0.0.1", hosts=listed, origins=origins, asks=True)
    assert narrow.host_error(b"public.example") is None
    assert code(narrow.host_error(b"other.example")) == "host-unknown"
    foreign = narrow.page_error(b"POST", b"public.example", b"https://other.example", None, None)
    assert code(foreign) == "page-foreign"


@pytest.mark.parametrize(
    ("method", "host", "origin", "site", "mode", "allowed"),
    [
        (b"POST", b"localhost:8080", None, None, None, True),
        (b"POST", b"localhost:8080", b"http://localhost:8080", b"same-origin", b"cors", True),
        (b"POST", b"localhost:8080", b"http://LOCALHOST:8080", None, None, True),
        (b"POST", b"[::1]:8080", b"http://[::1]:8080", None, None, True),
        (b"POST", b"localhost", b"http://localhost", None, None, True),
        (b"POST", b"localhost:80", b"http://localhost", None, None, True),
        (b"POST", b"localhost:443", b"https://localhost", None, None, True),
        (b"POST", b"localhost", b"https://localhost", None, None, True),
        (b"POST", b"localhost:8080", b"http://localhost:8090", b"same-site", b"cors", False),
        (b"POST", b"127.0.0.1:8080", b"http://localhost:8080", None, None, False),
        (b"POST", b"localhost:8080", b"https://evil.example", b"cross-site", b"no-cors", False),
        (b"POST", b"localhost:8080", b"null", b"cross-site", b"no-cors", False),
        (b"POST", b"localhost:8080", b"", None, None, False),
        (b"POST", b"localhost:8080", b"file://", None, None, False),
        (b"POST", b"localhost:8080", b"http://a,http://localhost:8080", None, None, False),
        (b"POST", b"localhost:8080", b"null, http://localhost:8080", None, None, False),
        (b"POST", b"localhost", b"capacitor://localhost", None, None, False),
        (b"POST", b"localhost:8080", b"app://localhost:8080", None, None, False),
        (b"POST", b"localhost:8080", None, b"cross-site", b"navigate", False),
        (b"POST", b"localhost:8080", None, b"same-site", None, False),
        (b"POST", b"localhost:8080", None, b"same-origin,cross-site", None, False),
        (b"GET", b"localhost:8080", None, b"cross-site", b"no-cors", False),
        (b"GET", b"localhost:8080", None, b"cross-site", b"navigate", True),
        (b"GET", b"localhost:8080", None, b"none", b"navigate", True),
        (b"GET", b"localhost:8080", b"https://evil.example", b"cross-site", b"navigate", False),
        (b"POST", b"localhost:8080", b"https://shop.example", b"cross-site", b"cors", True),
        (b"POST", b"localhost:8080", b"https://shop.example:443", None, None, True),
        (b"POST", b"localhost:8080", b"http://shop.example", None, None, False),
    ],
)
def test_pages_of_other_servers_send_nothing_here(
    method: bytes,
    host: bytes,
    origin: bytes | None,
    site: bytes | None,
    mode: bytes | None,
    allowed: bool,
) -> None:
    """A link that a person follows is no harm: the page that had it learns nothing."""
    gate = HostGate(origins=("https://shop.example",))
    refused = gate.page_error(method, host, origin, site, mode)
    assert code(refused) == (None if allowed else "page-foreign")
    assert refused is None or (refused.status, bool(refused.hint)) == (403, True)
    assert HostGate(any_origin=True).page_error(method, host, origin, site, mode) is None


@pytest.mark.parametrize(
    ("origin", "normal"),
    [
        ("https://Shop.example:443", "https://shop.example"),
        ("http://shop.example:443", "http://shop.example:443"),
        ("app://shop", "app://shop"),
        ("null", None),
        ("shop.example", None),
        ("https://shop.example/path", None),
        ("https://\N{SNOWMAN}.example", None),
    ],
)
def test_an_origin_has_one_spelling(origin: str, normal: str | None) -> None:
    assert normal_origin(origin) == normal
