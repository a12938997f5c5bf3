"""Who may talk to the server: pages that it served itself, to this machine, in small requests."""

import json
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 64 * 1024  # of a request's body: enough for two numbers of 10,000 digits
NAMES = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",
}


class Guard:
    """ASGI middleware that refuses foreign hosts and origins, and adds headers to every answer.

    The check of `Host` stops DNS rebinding, where a foreign name leads to this machine. The checks
    of `Origin`, `Sec-Fetch-Site` and the content type stop requests of other pages.
    """

    def __init__(self, app: ASGIApp, port: int):
        self.app = app
        self.hosts = {f"{name}:{port}" for name in NAMES} | (set(NAMES) if port == 80 else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket: there is none
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self.refuse(scope)
        if refusal:
            await discard_body(receive)
            await send_error(send_with_headers, *refusal)
        else:
            await self.app(scope, receive, send_with_headers)

    def refuse(self, scope: Scope) -> tuple[int, str] | None:
        """The status and the sentence for a request to refuse; None for one to answer."""
        headers, method = Headers(scope=scope), scope["method"]
        if headers.get("host", "").lower() not in self.hosts:
            return 403, "this page answers only under 127.0.0.1 and localhost"
        origin = headers.get("origin")
        if origin is not None and not self.is_own(origin):
            return 403, "this page answers only requests of its own pages"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "this page answers only requests of its own pages"
        if method not in ("GET", "HEAD", "POST"):
            return 405, f"the page does not take {method[:20]} requests"
        if method == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return 415, "a request's body must be JSON"
        size = headers.get("content-length", "0")
        if not size.isdecimal() or len(size) > 12 or int(size) > MOST_BYTES:
            return 413, f"a request has up to {MOST_BYTES // 1024} kB"
        return None

    def is_own(self, origin: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme == "http" and parts.netloc.lower() in self.hosts


async def discard_body(receive: Receive) -> None:
    """Read a refused body: closing a connection with bytes unread could lose the answer."""
    left = MOST_BYTES
    while left > 0:
        message = await receive()
        if not message.get("more_body", False):
            return
        left -= len(message["body"])


async def send_error(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"error": sentence}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # a body of more than MOST_BYTES stays unread
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
