"""Which names a request may use for this server, and which web pages may send requests.

A server on loopback asks nobody for credentials, because only programs of this machine reach it. A
browser is such a program, and runs scripts of strangers. They have two ways:

* A form, or a script that does not ask to read the answer, may post to any address (cross-site
  request forgery). Browsers say where such a request comes from, in `Origin` and `Sec-Fetch-Site`.
* A stranger's host name may be made to point at 127.0.0.1 once its page is loaded (DNS rebinding).
  The page then has the same origin as this server. Browsers send the name, in `Host`.

So a request is refused if it names a host which is not this server, or comes from another's page.
Where credentials are required there is nothing to misuse, since no browser adds them by itself:
there, names and pages are restricted only if the settings list some. gRPC needs none of this: pages
can't send its content type without asking first, and its server answers no such question.

Every decision here is a function of the request alone. Nothing is looked up in DNS.
(RFC 9110 7.2 and 7.4, RFC 9112 3.2, Fetch metadata: w3.org/TR/fetch-metadata.)
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from penstock.errors import CallerError, PenstockError

ANY = "*"
_SAFE_METHODS = (b"GET", b"HEAD")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._")
_HOST_BYTES_MAX = 262  #: a name of 255 characters, a colon and a port


def gate_for(
    host: str,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    machine_names: Iterable[str] = (),
    asks: bool,
) -> HostGate:
    """The gate of a server that listens at `host`.

    Args:
        hosts, origins: as the settings list them; `*` stands for any.
        machine_names: names of this machine; used where others can reach it.
        asks: credentials are required.
    """
    hosts, origins = tuple(hosts), tuple(origins)
    beyond = not is_loopback(host.strip("[]").lower())
    # Addresses that always lead to the asking machine (RFC 1122, 3.2.1.3), and are often typed.
    names = {"0.0.0.0", "::"}
    names |= {bare(name) for name in (*hosts, host)}
    if beyond:
        for name in machine_names:
            names |= {name.lower(), name.lower().partition(".")[0], f"{name.lower()}.local"}
    return HostGate(
        hosts=names - {"", ANY},
        origins=origins,
        any_host=ANY in hosts or (asks and not hosts),
        any_origin=ANY in origins or (asks and not origins),
        any_address=beyond,
    )


class HostGate:
    """Decides by names. Made once per server."""

    def __init__(
        self,
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        any_host: bool = False,
        any_origin: bool = False,
        any_address: bool = False,
    ) -> None:
        """
        Args:
            hosts: names and addresses without port. Loopback's are always among them.
            origins: other servers' pages that may call, `scheme://host[:port]`.
            any_address: every IP address is a name of this server. No attacker can make an address
                point elsewhere, so this is safe; on loopback alone only its own addresses can be
                right.
        """
        self._hosts = frozenset(hosts)
        self._origins = frozenset(filter(None, map(normal_origin, origins)))
        self._any_host = any_host
        self._any_origin = any_origin
        self._any_address = any_address

    def host_error(self, host: bytes) -> PenstockError | None:
        """None if the value of a Host header names this server."""
        authority = split_authority(host)
        if authority is None:
            return CallerError("host-malformed", "The Host header is no name or address.")
        name = authority[0]
        # Browsers take names below localhost for this machine, without DNS (RFC 6761, 6.3).
        own = is_loopback(name) or name.endswith(".localhost")
        if self._any_host or name in self._hosts or own:
            return None
        if self._any_address and is_address(name):
            return None
        return CallerError(
            "host-unknown",
            f"This server is not called {name}.",
            hint="If it is, list the name: PENSTOCK_LISTEN_HOSTS, or hosts below [listen].",
            status=421,
        )

    def page_error(
        self,
        method: bytes,
        host: bytes,
        origin: bytes | None,
        fetch_site: bytes | None,
        fetch_mode: bytes | None,
    ) -> PenstockError | None:
        """None if no web page sent the request, or an allowed one.

        Args:
            host: the one Host header, which has passed `host_error`.
            origin, fetch_site, fetch_mode: the headers Origin and Sec-Fetch-*; None = absent.
        """
        if self._any_origin:
            return None
        if origin is not None:
            if self._is_known_page(origin, host):
                return None
            return _foreign(origin.decode("latin-1"))
        if fetch_site is None or fetch_site in (b"same-origin", b"none"):
            return None
        if method in _SAFE_METHODS and fetch_mode == b"navigate":
            return None  # a link that a person followed: the page with the link sees nothing
        return _foreign("")

    def _is_known_page(self, origin: bytes, host: bytes) -> bool:
        told = normal_origin(origin.decode("latin-1"))
        authority = split_authority(host)
        if told is None or authority is None:
            return False
        if told in self._origins:
            return True
        # The scheme may differ: a proxy that ends TLS sends plain HTTP. Pages of other schemes
        # (apps, extensions) are never this server's own.
        scheme, _, of_page = told.partition("://")
        name, port = authority
        own = _joined(name, "" if port == _DEFAULT_PORTS.get(scheme) else port)
        return scheme in _DEFAULT_PORTS and of_page == own


def split_authority(value: bytes) -> tuple[str, str] | None:
    """(name, port) of `name[:port]`, in lower case and without a last dot; None if it is neither.

    The brackets of an IPv6 address are taken off.
    """
    text = value.strip(b" \t").decode("latin-1").lower()
    if not text or len(text) > _HOST_BYTES_MAX:
        return None
    if text[0] == "[":
        name, bracket, rest = text[1:].partition("]")
        if not bracket or not is_address(name) or ":" not in name:
            return None
        name = str(ipaddress.IPv6Address(name))
        colon, port = rest[:1], rest[1:]
        if colon not in ("", ":"):
            return None
    else:
        name, colon, port = text.partition(":")
        name = name.removesuffix(".")
        if not name or not _NAME_CHARACTERS.issuperset(name):
            return None
    if port and not (port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    return name, port


def normal_origin(origin: str) -> str | None:
    """`scheme://host[:port]` in one spelling; None for `null` and others that name no host."""
    scheme, separator, rest = origin.strip().lower().partition("://")
    authority = split_authority(rest.encode("latin-1", "replace"))
    if not separator or not scheme or authority is None:
        return None
    name, port = authority
    return f"{scheme}://{_joined(name, '' if port == _DEFAULT_PORTS.get(scheme) else port)}"


def is_loopback(name: str) -> bool:
    """Whether a name (in lower case) or an address leads to the asking machine."""
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_address(name: str) -> bool:
    if "%" in name:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_host(text: str) -> bool:
    """Whether a setting is a host: no port; an IPv6 address with brackets or without."""
    bracketed = f"[{text}]" if is_address(text) and ":" in text else text
    authority = split_authority(bracketed.encode("latin-1", "replace"))
    return authority is not None and not authority[1]


def bare(host: str) -> str:
    """A setting's name or address in the form that `split_authority` returns."""
    host = host.strip().lower().strip("[]").removesuffix(".")
    return str(ipaddress.ip_address(host)) if is_address(host) else host


def _joined(name: str, port: str) -> str:
    host = f"[{name}]" if ":" in name else name
    return f"{host}:{port}" if port else host


def _foreign(origin: str) -> PenstockError:
    page = f"A page of {origin[:256]}" if origin else "A page of another server"
    return CallerError(
        "page-foreign",
        f"{page} may not send requests here.",
        hint="If it may, list it: PENSTOCK_LISTEN_ORIGINS, or origins below [listen].",
        status=403,
    )
