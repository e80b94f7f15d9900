"""What every request must be and every answer must have, whatever the routes behind do."""

import logging
import traceback
from collections.abc import Collection
from ipaddress import ip_address

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .connection import network_of

logger = logging.getLogger(__name__)

METHODS = ("GET", "HEAD")
# Longer than any address of a text that is short enough: 4,000 characters of four bytes each, as %F0%9F%98%80.
MAX_HEADER_BYTES = 65_536
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class Guard:
    """ASGI middleware that refuses what is not listed, drops the work of clients who have left, and logs no text.

    Args:
        app: the routes.
        paths: the paths that exist.
        hosts: names that the server has beside those of this machine and the address that a client connected to.
            Another name in the `Host` header means that a foreign page had its own name resolved to this server.
        headers: of every answer, unless the route gives another value.
    """

    def __init__(self, app: ASGIApp, paths: Collection[str], hosts: Collection[str], headers: dict[str, str]):
        self.app, self.paths = app, frozenset(paths)
        self.hosts = frozenset(host.lower() for host in (*THIS_MACHINE, *hosts))
        self.headers = {
            **headers,
            "Cache-Control": "no-cache",
            "Connection": "close",  # which `BoundedConnection` counts on
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",  # addresses have the text in them
            "X-Content-Type-Options": "nosniff",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        async def answer() -> None:
            try:
                await (self._refusal(scope) or self.app)(scope, receive, send_with_headers)
            except Exception as error:
                # Neither the message nor the causes of an error are logged, as they may quote what was typed.
                frames = "".join(traceback.format_tb(error.__traceback__))
                logger.error(
                    "%s in the answer to %s %s\n%s", type(error).__name__, scope["method"], scope["path"], frames
                )
                if not has_begun:
                    await PlainTextResponse("This is an error of the server.", 500)(scope, receive, send_with_headers)

        async with anyio.create_task_group() as tasks:

            async def stop_when_client_leaves() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(stop_when_client_leaves)
            await answer()
            tasks.cancel_scope.cancel()

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        """The answer to a request that no route should see."""
        num_bytes = len(scope["query_string"]) + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if num_bytes > MAX_HEADER_BYTES:
            return PlainTextResponse("The address or the headers are too long.", 431)
        headers = Headers(scope=scope)
        if not self._is_own_host(headers.get("host", ""), scope["server"]):
            return PlainTextResponse("This server has another name; --allowed-host adds names to it.", 400)
        if scope["method"] not in METHODS or scope["path"] not in self.paths:
            return PlainTextResponse("There is nothing here.", 404)
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return PlainTextResponse("Requests to this server have no body.", 400)
        # Pages of other sites may link here and be left for this page, but not use it behind their reader's back.
        comes_from_elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if comes_from_elsewhere and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("This server answers its own page only.", 403)
        return None

    def _is_own_host(self, host: str, server: tuple[str, int | None] | None) -> bool:
        name, separator, port = host.rpartition(":")
        if not separator or not port.isdecimal():
            name = host
        if name.startswith("[") and name.endswith("]"):
            name = name[1:-1]
        return name.lower() in self.hosts or (server is not None and name == server[0])


def client_of(scope: Scope, behind_proxy: bool) -> str:
    """Who sent a request; see `network_of`.

    Args:
        scope: of the request.
        behind_proxy: whether all requests come through a proxy, which then names the client in `X-Forwarded-For`.
            What stands there before the last public address, the sender may have written.
    """
    address = (scope.get("client") or ("",))[0]
    if behind_proxy:
        for entry in reversed(Headers(scope=scope).get("x-forwarded-for", "").split(",")):
            try:
                if ip_address(entry.strip()).is_global:
                    address = entry.strip()
                    break
            except ValueError:
                break
    return network_of(address)
