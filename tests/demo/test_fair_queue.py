import asyncio

import pytest

from onlstm_hf.demo.fair_queue import FairQueue


class Clients:
    """Requests in a queue, and the order in which they had their turns."""

    def __init__(self, max_waiting=1000):
        self.queue, self.order = FairQueue(max_waiting), []

    async def ask(self, client):
        async with self.queue.turn(client):
            self.order.append(client)
            await asyncio.sleep(0)

    async def all_ask(self, *clients):
        """Each asks once, in this order."""
        return [asyncio.ensure_future(self.ask(client)) for client in clients]


def test_honest_clients_wait_for_one_request_of_a_greedy_one_each_however_many_it_has_waiting():
    async def run():
        clients = Clients()
        honest = [f"honest {number}" for number in range(20)]
        await asyncio.gather(*await clients.all_ask(*["greedy"] * 500, *honest))
        assert len(clients.order) == 520
        assert set(clients.order[:23]) == {"greedy", *honest}  # the running one, and one turn of each
        assert clients.order.count("greedy") == 500

    asyncio.run(run())


def test_clients_with_several_requests_take_turns():
    async def run():
        clients = Clients()
        await asyncio.gather(*await clients.all_ask(*"aaaabbbcc"))
        assert "".join(clients.order) == "aabcabcab"

    asyncio.run(run())


def test_one_client_at_a_time_has_its_turn():
    async def run():
        queue, inside = FairQueue(1000), []

        async def ask(client):
            async with queue.turn(client):
                inside.append(client)
                await asyncio.sleep(0.001)
                assert inside == [client]
                inside.remove(client)

        await asyncio.gather(*(ask(str(number % 7)) for number in range(50)))

    asyncio.run(run())


@pytest.mark.parametrize("steps", range(6))
def test_whoever_leaves_gives_the_turn_to_the_next(steps):
    async def run():
        clients = Clients()
        requests = await clients.all_ask(*"aaabbbccc")
        for _ in range(steps):  # some have had their turn, or have it just now
            await asyncio.sleep(0)
        for request in requests[0:9:2]:
            request.cancel()
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert [result for result in results[1::2] if result is not None] == []
        assert len(clients.order) >= 4
        await asyncio.wait_for(clients.ask("d"), 60)

    asyncio.run(run())


def test_a_client_may_have_so_many_requests_waiting_and_others_are_not_concerned():
    async def run():
        clients = Clients(max_waiting=3)
        results = await asyncio.gather(*await clients.all_ask(*"aaaaaab"), return_exceptions=True)
        assert [type(result) for result in results[:6]].count(asyncio.QueueFull) == 2
        assert results[6] is None
        assert clients.order.count("a") == 4

    asyncio.run(run())


def test_an_error_in_a_turn_ends_the_turn():
    async def run():
        clients = Clients()
        with pytest.raises(ZeroDivisionError):
            async with clients.queue.turn("a"):
                1 / 0  # noqa: B018
        await asyncio.wait_for(clients.ask("b"), 60)

    asyncio.run(run())
