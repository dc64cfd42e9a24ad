"""The catalogue's HTTP side: a product's picture and its page. Loopback, standard library only."""

from __future__ import annotations

import re
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from catalogue import image_svg
from shelf import Shelf

_PATH = re.compile(r"/(images|products)/(p\d{5})(\.svg)?")
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem;"
    "color-scheme:light dark}img{max-width:20rem;border-radius:1rem}"
    "dt{opacity:.7}dd{margin:0 0 .6rem}"
)


def serve(shelf: Shelf, port: int) -> ThreadingHTTPServer:
    """A server that listens; the caller runs `serve_forever`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/health":
                self._answer(200, "text/plain", "ok\n")
                return
            found = _PATH.fullmatch(self.path)
            if found is None or found[2] not in shelf.products:
                self._answer(404, "text/plain", "nothing is here\n")
            elif found[1] == "images":
                self._answer(200, "image/svg+xml", image_svg(shelf.products[found[2]]))
            else:
                self._answer(200, "text/html", page(shelf, found[2]))

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("content-type", f"{kind}; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.send_header("x-content-type-options", "nosniff")
            if kind == "image/svg+xml":
                self.send_header("cache-control", "max-age=86400")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server


def page(shelf: Shelf, ident: str) -> str:
    """A product's own page."""
    product, now = shelf.products[ident], shelf.fields(ident)
    facts = {
        "Price": f"${now['price_cents'] / 100:.2f}",
        "In stock": now["stock"] or "sold out",
        "Rating": f"{product.rating:.1f} of 5 stars, {product.reviews} reviews",
        "Colour": product.colour,
        "Material": product.material,
        "Features": ", ".join(product.features),
    }
    rows = "".join(f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
    title = escape(product.title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f'<h1>{title}</h1><img src="/images/{ident}.svg" alt="{title}">'
        f"<p>{escape(product.description)}</p><dl>{rows}</dl></html>\n"
    )
