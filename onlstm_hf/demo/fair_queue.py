"""Turns at something that one can use at a time, dealt out so that nobody waits for all the requests of another."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairQueue:
    """Clients take turns in rotation, however many requests each of them has waiting.

    Args:
        max_waiting: how many requests of one client may wait.
    """

    def __init__(self, max_waiting: int):
        self.max_waiting = max_waiting
        self._waiting: dict[str, deque[asyncio.Future]] = {}  # the client whose turn is next stands first
        self._is_busy = False

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Waits for a turn of the client and keeps it while the block runs. Whoever is cancelled leaves the queue.

        Raises:
            asyncio.QueueFull: if too many requests of the client wait already.
        """
        if self._is_busy:
            await self._wait(client)
        self._is_busy = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str) -> None:
        line = self._waiting.setdefault(client, deque())
        if len(line) >= self.max_waiting:
            raise asyncio.QueueFull
        ticket = asyncio.get_running_loop().create_future()
        line.append(ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            if ticket.cancelled():
                self._leave(client, ticket)
            else:  # the turn had come already
                self._pass_on()
            raise

    def _leave(self, client: str, ticket: asyncio.Future) -> None:
        line = self._waiting.get(client, deque())
        if ticket in line:
            line.remove(ticket)
            if not line:
                del self._waiting[client]

    def _pass_on(self) -> None:
        self._is_busy = False
        while self._waiting and not self._is_busy:
            client = next(iter(self._waiting))
            line = self._waiting.pop(client)
            ticket = line.popleft()
            if line:
                self._waiting[client] = line  # now behind all others
            if not ticket.cancelled():
                ticket.set_result(None)
                self._is_busy = True
