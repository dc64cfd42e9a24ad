"""A loopback HTTP server that holds objects: GETs, ranges and HEAD, and of S3's operations
ListObjectsV2, PutObject, multipart uploads, DeleteObject and DeleteObjects."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.kit.http_servers import QuietHandler, listening


class ObjectServer:
    """`objects` maps URL paths ("/bucket/key") to content; `requests` is what was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []  #: "GET /path?query"
        self.before: Callable[[str], None] = lambda path: None  #: called before each answer
        self.authorizations: list[str] = []
        self.cut_at: int | None = None  #: answer with this many bytes and hang up
        self.chunked = False  #: answer without Content-Length
        self.status = 200
        self.error_body = b""  #: of answers with another status than 200
        self.parts: dict[str, dict[int, bytes]] = {}  #: of multipart uploads that go on, by id
        self.redirects: dict[str, str] = {}  #: path -> location


@contextmanager
def object_server(tls: ssl.SSLContext | None = None) -> Iterator[ObjectServer]:
    state = ObjectServer("")
    with listening(_ObjectHandler, state, tls=tls) as state.url:
        yield state


class _ObjectHandler(QuietHandler):
    def do_GET(self) -> None:
        state: ObjectServer = self.state
        state.requests.append(f"{self.command} {self.path}")
        state.before(self.path)
        state.authorizations.append(self.headers.get("Authorization", ""))
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        if parts.path in state.redirects:
            self.reply(302, {"Location": state.redirects[parts.path]}, b"")
        elif state.status != 200:
            self.reply(state.status, {}, state.error_body)
        elif "list-type" in query:
            self.reply(200, {}, self._listing(state, parts.path, query.get("prefix", [""])[0]))
        elif unquote(parts.path) in state.objects:
            self._object(state, state.objects[unquote(parts.path)])
        else:
            self.reply(404, {}, b"")

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        state, path, query, body = self._taken()
        if "uploadId" in query:
            state.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
        elif state.status == 200:
            state.objects[path] = body
        self.reply(state.status, _named(body), b"")

    def do_POST(self) -> None:
        state, path, query, body = self._taken()
        if "uploads" in query:
            upload = f"upload-{len(state.requests)}"
            state.parts[upload] = {}
            told = f"<UploadId>{upload}</UploadId>"
            self.reply(200, {}, f"<InitiateMultipartUploadResult>{told}"
                         "</InitiateMultipartUploadResult>".encode())  # fmt: skip
        elif "uploadId" in query:
            parts = state.parts.pop(query["uploadId"][0])
            state.objects[path] = b"".join(parts[number] for number in sorted(parts))
            told = '<ETag>"of-many"</ETag>'
            self.reply(200, {}, f"<CompleteMultipartUploadResult>{told}"
                         "</CompleteMultipartUploadResult>".encode())  # fmt: skip
        else:  # DeleteObjects
            keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            for key in keys:
                state.objects.pop(f"{path.rstrip('/')}/{key}", None)
            told = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self.reply(200, {}, f"<DeleteResult>{told}</DeleteResult>".encode())

    def do_DELETE(self) -> None:
        state, path, query, _ = self._taken()
        if "uploadId" in query:
            state.parts.pop(query["uploadId"][0], None)
        else:
            state.objects.pop(path, None)
        self.reply(204, {}, b"")

    def _taken(self) -> tuple[ObjectServer, str, dict[str, list[str]], bytes]:
        state: ObjectServer = self.state
        state.requests.append(f"{self.command} {self.path}")
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        return state, unquote(parts.path), query, self.body()

    def _object(self, state: ObjectServer, content: bytes) -> None:
        if state.chunked:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content))
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked:
            first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
            headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
            self.reply(206, headers | _named(content), content[first : last + 1])
            return
        body = content if state.cut_at is None else content[: state.cut_at]
        self.close_connection = state.cut_at is not None
        self.reply(200, {"Content-Length": str(len(content))} | _named(content), body)

    def _listing(self, state: ObjectServer, path: str, prefix: str) -> bytes:
        bucket = path.strip("/")
        items = []
        for name, content in sorted(state.objects.items()):
            key = name.removeprefix(f"/{bucket}/")
            if name != key and key.startswith(prefix):
                items.append(
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
                    f'<ETag>"{hashlib.md5(content).hexdigest()}"</ETag>'
                    "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
                )
        return (
            f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>"
            f"<KeyCount>{len(items)}</KeyCount>{''.join(items)}</ListBucketResult>"
        ).encode()


def _named(content: bytes) -> dict[str, str]:
    """What an answer says of the content that it is of."""
    etag = f'"{hashlib.md5(content).hexdigest()}"'
    return {"ETag": etag, "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
