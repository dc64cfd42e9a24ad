"""One object behind an https:// URL (http:// on this machine), through urllib3.

Redirects follow a rule, because a caller who names a URL could otherwise make the server request
what only the server can reach. Five are followed at most, and only to the same scheme. They lead to
this machine or a private network only if they began there, and never to link-local addresses, where
clouds keep credentials. The address is checked on the open connection, so that a name can't change
its meaning in between.

Text that the far end sends with an error is never passed on, and neither are signed queries.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, MaxRetryError

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import CHUNK_BYTES, Listing, SourceFile
from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.sources import object_store
from penstock.errors import CallerError, PenstockError

REDIRECTS_MAX: Final = 5
#: Most digits of a size: no file is longer than such a number says.
_SIZE_DIGITS_MAX: Final = 18
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_TRIED_AGAIN: Final = (429, 500, 502, 503, 504)

Admits = Callable[[str], bool]


def list_http(url: str, *, budget: Budget) -> Listing:
    """Sends the request, which is open when this returns; `chunks` reads its body.

    Path, query and percent-encoding of a presigned URL reach the server untouched.
    """
    response = _followed(url, budget)
    size = response.headers.get("content-length", "")
    if not (size.isascii() and size.isdigit() and len(size) <= _SIZE_DIGITS_MAX):
        response.close()
        raise object_store.size_unknown(budget.what)
    path = url.split("?", 1)[0].split("#", 1)[0]
    file = SourceFile(
        name=safe_path(path.rsplit("/", 1)[-1] or "model", where=budget.what),
        size=int(size),
        stamp=response.headers.get("etag") or response.headers.get("last-modified") or "",
        chunks=lambda: _chunks(response, int(size), budget),
    )
    return Listing(files=(file,), single=True)


def _followed(url: str, budget: Budget) -> Any:
    """The answer after all redirects, its body unread."""
    inside: list[bool] = []  #: holds one value once known: whether the first address was not public

    def admits(address: str) -> bool:
        if not inside:
            inside.append(not _is_public(address))
            return True
        return not _is_link_local(address) and (inside[0] or _is_public(address))

    origin = urlsplit(url).netloc
    for _ in range(REDIRECTS_MAX + 1):
        budget.check()
        response = _asked(url, admits, budget, credentials=urlsplit(url).netloc == origin)
        if response.status not in _REDIRECTS:
            return _accepted(response, budget.what)
        response.close()
        try:
            to = urljoin(url, response.headers.get("location", ""))
            scheme = urlsplit(to).scheme
        except ValueError:
            raise _refused(budget.what, "to what is no URL") from None
        if scheme != urlsplit(url).scheme:
            raise _refused(budget.what, "to another scheme")
        url = to
    raise _refused(budget.what, f"more than {REDIRECTS_MAX} times")


def _accepted(response: Any, what: str) -> Any:
    if response.status == 200:
        return response
    response.close()
    if response.status in (404, 410):
        raise object_store.not_found(what)
    if response.status in (401, 403):
        raise object_store.access_denied(what)
    raise object_store.unreachable(what, f"the server answered {response.status}")


def _asked(url: str, admits: Admits, budget: Budget, *, credentials: bool) -> Any:
    parts = urlsplit(url)
    headers = {"user-agent": "penstock", "accept-encoding": "identity"}
    if credentials and parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers |= urllib3.make_headers(basic_auth=pair)
    try:
        pool = _pool(parts.scheme, parts.hostname or "", parts.port, admits, budget)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return pool.urlopen(
            "GET",
            target,
            headers=headers,
            redirect=False,
            preload_content=False,
            retries=urllib3.Retry(
                object_store.RETRIES_MAX,
                redirect=False,
                status_forcelist=_TRIED_AGAIN,
                backoff_factor=0.2,
                raise_on_status=False,
                respect_retry_after_header=False,
            ),
        )
    except (HTTPError, OSError, ValueError) as error:
        raise _failed(budget.what, error) from error


def _pool(scheme: str, host: str, port: int | None, admits: Admits, budget: Budget) -> Any:
    options: dict[str, Any] = {
        "timeout": urllib3.Timeout(connect=object_store.CONNECT_S, read=object_store.STALL_S),
        "maxsize": 1,
    }
    if scheme == "https":
        options["ssl_context"] = _tls(budget)
    proxy = urllib.request.getproxies().get(scheme)
    if proxy and not urllib.request.proxy_bypass(host):
        if not admits(_named_address(host)):
            raise _refused(budget.what, "into this machine or a private network")
        manager = urllib3.ProxyManager(proxy, **options)
        return manager.connection_from_host(host, port, scheme)
    base: Any = HTTPSConnection if scheme == "https" else HTTPConnection

    class Checked(base):  # type: ignore[misc]
        def _new_conn(self) -> Any:
            made = super()._new_conn()
            if not admits(made.getpeername()[0]):
                made.close()
                raise _refused(budget.what, "into this machine or a private network")
            return made

    kind = urllib3.HTTPSConnectionPool if scheme == "https" else urllib3.HTTPConnectionPool
    pool = kind(host, port, **options)
    pool.ConnectionCls = Checked
    return pool


def _named_address(host: str) -> str:
    """The address that a host's name spells, where a proxy looks the name up."""
    if host.lower().rstrip(".").endswith("localhost"):
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return "1.1.1.1"  # a name: the proxy decides where it leads


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _is_public(text: str) -> bool:
    address = _address(text)
    return address.is_global and not address.is_multicast


def _is_link_local(text: str) -> bool:
    return _address(text).is_link_local


def _tls(budget: Budget) -> ssl.SSLContext:
    """The authorities of the system or SSL_CERT_FILE, and those of AWS_CA_BUNDLE like AWS's
    tools."""
    context = ssl.create_default_context()
    bundle = os.environ.get("AWS_CA_BUNDLE", "")
    if bundle:
        try:
            context.load_verify_locations(bundle)
        except OSError as error:
            raise object_store.bundle_unreadable(budget.what, bundle, error) from None
    return context


def _chunks(response: Any, size: int, budget: Budget) -> Iterator[bytes]:
    read = 0
    try:
        for chunk in response.stream(CHUNK_BYTES, decode_content=False):
            read += len(chunk)
            yield chunk
    except PenstockError:
        raise
    except (HTTPError, OSError) as error:
        raise _failed(budget.what, error) from error
    finally:
        response.close()
    if read != size:
        raise object_store.unreachable(
            budget.what, f"the answer ended after {read} of {size} bytes"
        )


def _failed(what: str, error: Exception) -> PenstockError:
    cause: Any = error.reason if isinstance(error, MaxRetryError) and error.reason else error
    if "CERTIFICATE_VERIFY_FAILED" in str(cause):
        return object_store.certificate_untrusted(what)
    words = object_store.without_secrets(str(cause).splitlines()[0] if str(cause) else "")
    return object_store.unreachable(what, words or type(cause).__name__)


def _refused(what: str, how: str) -> CallerError:
    return CallerError(
        "artifact-redirect-refused",
        f"{what}: the server redirects {how}",
        hint="Name the URL that the artifact is really at.",
    )
