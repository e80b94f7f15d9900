"""HTTP connections of bounded time and number: uvicorn by itself waits without end for a client that is silent."""

import asyncio
from ipaddress import IPv6Network

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_ASK, SECONDS_TO_READ = 10, 60
MAX_CONNECTIONS_OF_CLIENT = 100


class BoundedConnection(H11Protocol):
    """A connection of one request, which must come, and whose answer must be read, within some seconds.

    That it carries one request only is the work of the header `Connection: close` in every answer (`Guard`).

    Args:
        max_connections: how many a client may have open; `None` where all clients come through a proxy.
        seconds_to_ask: from the opening of the connection to the end of the request's headers.
        seconds_to_read: from the moment that the answer is ready to the closing of the connection.
    """

    def __init__(
        self,
        *arguments,
        max_connections: int | None = MAX_CONNECTIONS_OF_CLIENT,
        seconds_to_ask: float = SECONDS_TO_ASK,
        seconds_to_read: float = SECONDS_TO_READ,
        **options,
    ):
        super().__init__(*arguments, **options)
        self.max_connections = max_connections
        self.seconds_to_ask, self.seconds_to_read = seconds_to_ask, seconds_to_read
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._drop_after(self.seconds_to_ask)
        self.network = network_of(self.client[0] if self.client else "")
        neighbours = [other for other in self.connections if other.network == self.network]
        if self.max_connections is not None and len(neighbours) > self.max_connections:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        had_request = self.cycle is not None
        super().data_received(data)
        if self.cycle is not None and not had_request and not self.cycle.response_complete:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._drop_after(self.seconds_to_read)

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(error)

    def _drop_after(self, seconds: float) -> None:
        """Closes the connection at once when the time is over, whatever is still to be sent."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)


def network_of(address: str) -> str:
    """A client as its address shows it: with IPv6, one has all addresses of a network of 64 bits."""
    return str(IPv6Network((address, 64), strict=False)) if ":" in address else address
