"""Where `endpoint` steps find the platform; its server sends this once to each instance.

A model's own Environment comes first: if it names another platform, that one is called with the key
given beside it and never with ours. Models' processes do not see these variables, nor do the files
of an artifact: `environment` says what they see.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.environment import for_models

URL: Final = "PENSTOCK_URL"  #: the address where endpoints are called
KEY: Final = "PENSTOCK_KEY"  #: a bearer key for calls
#: PEM file: the server's certificate, or the authority that signed it
CERTIFICATE: Final = "PENSTOCK_CERTIFICATE"


class PlatformAt(NamedTuple):
    url: str
    key: str
    tls: ssl.SSLContext | None


def tell(platform: Mapping[str, str]) -> None:
    """Sets this instance's variables; values inherited from a shell are for other programs."""
    for name, value in (
        (URL, platform.get("url", "")),
        (KEY, platform.get("key", "")),
        (CERTIFICATE, platform.get("certificate", "")),
    ):
        os.environ.pop(name, None)
        if value:
            os.environ[name] = value


def seen_by_artifacts(context: LoadContext) -> dict[str, str]:
    """The variables that `${NAME}` in an artifact's files may name."""
    return for_models() | context.variables


def platform_of(context: LoadContext, step: str, endpoint: str) -> PlatformAt:
    """Raises ModelError where the platform's address is unknown."""
    own = context.variables
    told: Mapping[str, str] = own if URL in own else os.environ
    url = told.get(URL, "")
    if not url.startswith(("http://", "https://")):
        raise ModelError(
            "invalid-environment",
            f"step {step!r} asks the endpoint {endpoint!r}, and {URL} is {url!r}",
            hint=f"Set {URL} in the model's Environment, such as http://127.0.0.1:8080.",
        )
    tls = _tls(told.get(CERTIFICATE, "")) if url.startswith("https://") else None
    return PlatformAt(url.rstrip("/"), told.get(KEY, ""), tls)


def _tls(certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not certificate:
        return context
    try:
        context.load_verify_locations(certificate)
    except (OSError, ssl.SSLError) as error:
        raise ModelError(
            "invalid-environment", f"{CERTIFICATE}: {certificate} can't be read: {error}"
        ) from None
    # We connect to loopback, an address that no certificate names: the certificate itself must
    # match.
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context
