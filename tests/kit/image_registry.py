"""A registry of one image on this machine's loopback: the files of an OCI layout, to be read.

It may ask for a password, and lie.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.kit.container_images import engine_says, image

#: Tag of an image whose configuration says that it is made for another machine.
ELSEWHERE = "elsewhere"


class ImageRegistry(ThreadingHTTPServer):
    """Serves `layout` as any name with the tag 1, and counts what is asked for."""

    def __init__(self, layout: Path, *, login: str = "") -> None:
        """`login`: "user:password" that everything needs; "" = nothing does."""
        super().__init__(("127.0.0.1", 0), _RegistryHandler)
        self.layout = layout
        self.login = login
        self.asked: list[str] = []
        self.logins: set[str] = set()  #: that were sent
        self.lies = False  #: every digest has the manifest of tag 1
        [known] = json.loads((layout / "index.json").read_text())["manifests"]
        self.kind: str = known["mediaType"]
        self.digests: dict[str, str] = {"1": known["digest"]}
        self.digests[ELSEWHERE] = self._elsewhere()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def _elsewhere(self) -> str:
        manifest = json.loads(self._file(self.digests["1"]).read_text())
        config = json.loads(self._file(manifest["config"]["digest"]).read_text())
        content = json.dumps(config | {"architecture": "s390x"}).encode()
        made = {"digest": self._added(content), "size": len(content)}
        return self._added(json.dumps(manifest | {"config": manifest["config"] | made}).encode())

    def _added(self, content: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._file(digest).write_bytes(content)
        return digest

    def _file(self, digest: str) -> Path:
        return self.layout / "blobs" / digest.replace(":", "/")

    def manifest(self, reference: str) -> tuple[str, bytes] | None:
        """(digest, bytes) of a tag or a digest."""
        if reference in self.digests.values():
            digest = reference
        elif self.lies and ":" in reference:
            digest = self.digests["1"]
        elif reference in self.digests:
            digest = self.digests[reference]
        else:
            return None
        return digest, self._file(digest).read_bytes()

    def blob(self, digest: str) -> bytes | None:
        path = self._file(digest)
        return path.read_bytes() if path.is_file() else None

    def lets_in(self, header: str) -> bool:
        """`header`: Authorization of a request."""
        if not self.login:
            return True
        sent = base64.b64decode(header.removeprefix("Basic ")).decode()
        self.logins.add(sent)
        return sent == self.login


class _RegistryHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ImageRegistry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name, _, reference = self.path.rpartition("/")
        if not self.server.lets_in(self.headers.get("Authorization", "")):
            self.say(401, b'{"errors": [{"code": "UNAUTHORIZED"}]}')
        elif self.path == "/v2/":
            self.say(200, b"{}")
        elif name.endswith("/blobs"):
            blob = self.server.blob(reference)
            self.say(404 if blob is None else 200, blob or b"{}", "application/octet-stream")
        elif name.endswith("/manifests"):
            found = self.server.manifest(reference)
            if found is None:
                self.say(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
            else:
                self.say(200, found[1], self.server.kind, found[0])
        else:
            self.say(404, b"{}")

    do_HEAD = do_GET

    def say(
        self, status: int, body: bytes, kind: str = "application/json", digest: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="tests"')
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextlib.contextmanager
def registry(folder: Path, *, login: str = "") -> Iterator[ImageRegistry]:
    """One with an image like that of `container_images`, which the engine itself has no more."""
    made = "localhost/penstock-registry:made"
    (folder / "context").mkdir(parents=True)
    (folder / "context" / "Dockerfile").write_text(f"FROM {image()}\nLABEL of=the-registry\n")
    engine_says("build", "--quiet", "--tag", made, str(folder / "context"))
    engine_says("save", "--quiet", "--format", "oci-dir", "--output", str(folder / "oci"), made)
    engine_says("rmi", made)
    server = ImageRegistry(folder / "oci", login=login)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
