"""A registry of one image on this machine's loopback: the files of an OCI layout, to be read."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.kit.container_images import engine_says, image


class ImageRegistry(ThreadingHTTPServer):
    """Serves `layout` as any name with the tag 1, and counts what is asked for."""

    def __init__(self, layout: Path) -> None:
        super().__init__(("127.0.0.1", 0), _RegistryHandler)
        self.layout = layout
        self.asked: list[str] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def manifest(self, reference: str) -> tuple[str, str, bytes] | None:
        """(digest, type, bytes) of a tag or a digest."""
        [known] = json.loads((self.layout / "index.json").read_text())["manifests"]
        if reference not in ("1", known["digest"]):
            return None
        body = self.blob(known["digest"])
        return None if body is None else (known["digest"], known["mediaType"], body)

    def blob(self, digest: str) -> bytes | None:
        path = self.layout / "blobs" / digest.replace(":", "/")
        return path.read_bytes() if path.is_file() else None


class _RegistryHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ImageRegistry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name, _, reference = self.path.rpartition("/")
        if self.path == "/v2/":
            self.say(200, b"{}")
        elif name.endswith("/blobs"):
            blob = self.server.blob(reference)
            self.say(404 if blob is None else 200, blob or b"{}", "application/octet-stream")
        elif name.endswith("/manifests"):
            found = self.server.manifest(reference)
            if found is None:
                self.say(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
            else:
                digest, kind, body = found
                self.say(200, body, kind, digest)
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
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[ImageRegistry]:
    """One with an image like that of `container_images`, which the engine itself has no more."""
    made = "localhost/penstock-registry:made"
    (folder / "context").mkdir(parents=True)
    (folder / "context" / "Dockerfile").write_text(f"FROM {image()}\nLABEL of=the-registry\n")
    engine_says("build", "--quiet", "--tag", made, str(folder / "context"))
    engine_says("save", "--quiet", "--format", "oci-dir", "--output", str(folder / "oci"), made)
    engine_says("rmi", made)
    server = ImageRegistry(folder / "oci")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
