"""The command line's own client. It uses only the server's public APIs over HTTP.

Commands create and describe resources by the SageMaker API (JSON 1.1). What that API lacks
(explanations, logs) they read from the admin API.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from penstock.errors import CallerError, InternalError, ModelError, NotNowError, PenstockError

DEFAULT_URL = "http://127.0.0.1:8080"


class SageMaker(Protocol):
    """A client of the SageMaker control plane: over HTTP, or inside the server's process."""

    def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]: ...


def if_there(client: SageMaker, operation: str, **members: Any) -> dict[str, Any] | None:
    """A call about one resource; None where it does not exist."""
    try:
        return client.sagemaker(operation, **members)
    except CallerError as error:
        if "Could not find" in error.message:
            return None
        raise


class Client:
    """Calls one server. `key` is a bearer key (`penstock keys create`); "" for a server without
    keys."""

    def __init__(self, url: str = "", *, key: str = "", timeout_s: float = 70.0) -> None:
        self.url = (url or os.environ.get("PENSTOCK_URL") or DEFAULT_URL).rstrip("/")
        self._key = key or os.environ.get("PENSTOCK_KEY", "")
        self._timeout_s = timeout_s
        self._tls, self._host, self._port = _parts(self.url)

    def sagemaker(self, operation: str, **members: Any) -> dict[str, Any]:
        """One call of the SageMaker control plane."""
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"SageMaker.{operation}",
        }
        status, _, body = self.request("POST", "/", json.dumps(members).encode(), headers)
        return answer_of(status, body)

    def admin(self, path: str, *, method: str = "GET", body: bytes = b"") -> dict[str, Any]:
        """One call of the admin API, below `/admin`; a body is JSON."""
        headers = {"Content-Type": "application/json"} if body else {}
        status, _, answered = self.request(method, f"/admin{path}", body, headers)
        return answer_of(status, answered)

    def deploying(self, endpoint: str) -> dict[str, Any]:
        """How far an endpoint is (`cli.waiting.TellsProgress`)."""
        return self.admin(f"/endpoints/{quote(endpoint, safe='')}/deploying")

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    def invoke(
        self, endpoint: str, body: bytes, headers: dict[str, str]
    ) -> tuple[bytes, dict[str, str]]:
        """InvokeEndpoint. Returns the body and the headers (lower case)."""
        path = f"/endpoints/{quote(endpoint, safe='')}/invocations"
        status, answered, reply = self.request("POST", path, body, headers)
        if status >= 300:
            answer_of(status, reply, code=answered.get("x-amzn-errortype", ""))
        return reply, answered

    def stream(
        self,
        endpoint: str,
        body: bytes,
        headers: dict[str, str],
        begun: Callable[[dict[str, str]], None],
    ) -> Iterator[bytes]:
        """InvokeEndpointWithResponseStream: yields the pieces of the answer as they arrive.

        `begun` gets the headers (lower case) before the first piece. Raises ModelError or
        InternalError if the stream breaks.
        """
        path = f"/endpoints/{quote(endpoint, safe='')}/invocations-response-stream"
        with self._exchange("POST", path, body, headers) as answer:
            answered = _names(answer)
            if answer.status >= 300:
                answer_of(answer.status, answer.read(), code=answered.get("x-amzn-errortype", ""))
            begun(answered)
            yield from payloads_of(answer)

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One exchange. Raises NotNowError if no server answers there."""
        with self._exchange(method, path, body, headers or {}) as answer:
            return answer.status, _names(answer), answer.read()

    @contextmanager
    def _exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        sent = dict(headers)
        if self._key:
            sent["Authorization"] = f"Bearer {self._key}"
        connection: http.client.HTTPConnection
        if self._tls:
            connection = http.client.HTTPSConnection(
                self._host,
                self._port,
                timeout=self._timeout_s,
                context=ssl.create_default_context(),
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request(method, path, body=body, headers=sent)
            yield connection.getresponse()
        except ssl.SSLCertVerificationError as error:
            raise CallerError(
                "certificate-untrusted",
                f"the certificate of {self.url} is not trusted: {error.verify_message}",
                hint="Name the certificate, or its authority's, in the variable SSL_CERT_FILE.",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise NotNowError(
                "server-unreachable",
                f"no answer from {self.url}: {error or type(error).__name__}",
                hint="Start it with 'penstock up', or name it with --url.",
            ) from error
        except ValueError as error:
            raise CallerError(
                "header-invalid",
                f"the request can't be written: {error}",
                hint="Check the key and the headers: no line breaks, no characters beyond Latin-1.",
            ) from error
        finally:
            connection.close()


def _names(answer: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.getheaders()}


def payloads_of(answer: io.BufferedIOBase) -> Iterator[bytes]:
    """Payloads of the frames of a streamed answer; raises the error in an exception frame."""
    from botocore.eventstream import EventStreamBuffer, ParserError  # noqa: PLC0415 - takes 50 ms

    frames, left_bytes = EventStreamBuffer(), 0
    while data := answer.read1(65_536):
        frames.add_data(data)
        left_bytes += len(data)
        try:
            messages = list(frames)
        except (ParserError, struct.error, LookupError, UnicodeError) as error:
            raise CallerError("eventstream-torn", f"the stream is torn: {error}") from error
        for message in messages:
            left_bytes -= message.prelude.total_length
            _raise_broken(message.headers.get(":exception-type"), message.payload)
            yield message.payload
    if left_bytes:
        raise ModelError("stream-broken", "the stream ended in the middle of a frame")


def _raise_broken(kind: str | None, payload: bytes) -> None:
    if kind is None:
        return
    fields = json.loads(payload)
    family = ModelError if kind == "ModelStreamError" else InternalError
    raise family(kind, str(fields.get("Message", "the stream broke")))


def _parts(url: str) -> tuple[bool, str, int | None]:
    """(whether it is TLS, host, port)"""
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname:
            return parts.scheme == "https", parts.hostname, parts.port
    except ValueError:
        pass
    raise CallerError(
        "url-invalid",
        f"{url!r} is not a server's address",
        hint=f"Write it like {DEFAULT_URL}.",
    )


def answer_of(status: int, body: bytes, *, code: str = "") -> dict[str, Any]:
    """The answer's members, or raises its error; rest-json has the error's code in a header."""
    try:
        value = json.loads(body) if body else {}
    except ValueError:
        value = {"message": body[:500].decode("utf-8", "replace")}
    if status < 300:
        return value if isinstance(value, dict) else {"value": value}
    fields = value if isinstance(value, dict) else {"message": str(value)}
    code = str(code or fields.get("code") or fields.get("__type") or f"http-{status}")
    message = str(fields.get("message") or fields.get("Message") or f"HTTP status {status}")
    hint = str(fields.get("hint") or _hint(status, message))
    family: type[PenstockError] = CallerError
    if status in {429, 503}:
        family = NotNowError
    elif status == 424:
        family = ModelError
    elif status >= 500:
        family = InternalError
    raise family(code, message, hint=hint, status=status)


def _hint(status: int, message: str) -> str:
    """A hint for an error of AWS's, which carries none."""
    if status == 403:
        return "Give a key of 'penstock keys create --bearer' with --key or PENSTOCK_KEY."
    if "Could not find" in message or message.endswith(" not found."):
        return "See 'penstock status' for what there is."
    if status in {429, 503}:
        return "Try again in a moment."
    return ""
