"""Connections to pods: what is kept, within how many files, and what ends a connection."""

import asyncio
import gzip
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.compose.clock import SystemClock
from adapter.errors import ScrapeError
from adapter.scrape.bodies import AnswerBody, BodyBudget
from adapter.scrape.connections import MOST_HINTS, PodConnection
from adapter.scrape.http import ScrapeEndpoint
from adapter.scrape.schedule import FairTurns
from tests.scrape.wire import ACCESS, WirePod, scraping
from tests.support.clock import FakeClock
from tests.support.waiting import until

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nx 1\n"
HINT = b"HTTP/1.1 103 Early Hints\r\n\r\n"
SIZE = 20_000_000
SECOND = "invalid HTTP response: more than one response"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(ANSWER, "x 1\n", id="one answer"),
        pytest.param(HINT * MOST_HINTS + ANSWER, "x 1\n", id="after some hints"),
        pytest.param(
            HINT * (MOST_HINTS + 1) + ANSWER,
            "invalid HTTP response: more than 4 informational responses",
            id="after too many hints",
        ),
        pytest.param(ANSWER * 2, SECOND, id="two answers"),
        pytest.param(ANSWER + HINT, SECOND, id="a hint after the answer"),
    ],
)
async def test_a_request_has_one_answer(tmp_path: Path, answer: bytes, outcome: str) -> None:
    pod = WirePod(answer)
    async with scraping(tmp_path, [pod]) as here:
        assert [await here.outcome(pod), await here.outcome(pod)] == [outcome, outcome]
        assert pod.connections == (1 if outcome == "x 1\n" else 2), "such a connection is not kept"


async def test_a_byte_on_a_kept_connection_ends_it(tmp_path: Path) -> None:
    pod = WirePod(ANSWER, late=b"\n")
    async with scraping(tmp_path, [pod]) as here:
        assert await here.outcome(pod) == "x 1\n"
        assert pod.open == 1
        pod.pour.set()
        await until(lambda: not pod.open)

        assert await here.outcome(pod) == "x 1\n"
        assert pod.connections == 2


async def test_bytes_before_the_request_are_no_answer(tmp_path: Path) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()
        writer.close()

    async with scraping(tmp_path, []) as here, await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ScrapeError, match="invalid HTTP response"):
            await here.scraper.fetch(ScrapeEndpoint("shop", "127.0.0.1", port, ACCESS))


async def test_a_chunk_that_is_none_fails_the_scrape_at_once(tmp_path: Path) -> None:
    pod = WirePod(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nx 1\n\r\n", late=b"no chunk\r\n"
    )
    pod.pour.set()
    async with scraping(tmp_path, [pod]) as here:
        begun = asyncio.get_running_loop().time()
        assert (await here.outcome(pod)).startswith("invalid HTTP response: ")
        assert asyncio.get_running_loop().time() - begun < ACCESS.timeout


async def test_what_is_not_parsed_yet_is_charged_to_the_body(tmp_path: Path) -> None:
    bodies = BodyBudget(8000, 5000)
    pod = WirePod(b"HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n" + b"#" * 6000)
    async with scraping(tmp_path, [pod]) as here:
        with closing(bodies.open("shop")) as body, pytest.raises(ScrapeError, match="more than 5000 bytes"):
            await here.scraper.fetch(pod.endpoint, body)
        assert not bodies.size


async def test_what_was_not_parsed_is_not_charged_to_a_body_that_is_closed(tmp_path: Path) -> None:
    clock, bodies, loop = FakeClock(), BodyBudget(), asyncio.get_running_loop()
    connection = PodConnection(loop, FairTurns(clock), clock)
    async with scraping(tmp_path, [pod := WirePod(None)]):
        await loop.create_connection(lambda: connection, "127.0.0.1", pod.endpoint.port)
        body = bodies.open("shop")
        body.add(b"x 1\n")
        asking = asyncio.create_task(
            connection.ask(b"GET / HTTP/1.1\r\n\r\n", AnswerBody(body, ACCESS), 1000)
        )
        await asyncio.sleep(0)
        connection.data_received(ANSWER)
        assert bodies.size == 4 + len(ANSWER)
        asking.cancel()
        connection.abort()
        body.close()
        await asyncio.sleep(0.01)

        assert bodies.size == 0


async def test_what_is_still_unzipped_when_the_scrape_ends_is_not_charged(tmp_path: Path) -> None:
    clock, bodies, loop = SystemClock(), BodyBudget(), asyncio.get_running_loop()
    connection = PodConnection(loop, turns := FairTurns(clock), clock)
    async with scraping(tmp_path, [pod := WirePod(None)]):
        await loop.create_connection(lambda: connection, "127.0.0.1", pod.endpoint.port)
        buffer = bodies.open("shop")
        body = AnswerBody(buffer, replace(ACCESS, max_bytes=SIZE))
        asking = asyncio.create_task(connection.ask(b"GET / HTTP/1.1\r\n\r\n", body, SIZE))
        await asyncio.sleep(0)
        bomb = gzip.compress(b"#" * SIZE)
        connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + bomb)
        await until(lambda: bodies.size > 100_000)
        assert bodies.size < SIZE, "a turn unzips a part"
        asking.cancel()
        connection.abort()
        buffer.close()
        await turns.finish(turns.start("shop", (None for _ in range(2))))

        assert bodies.size == 0


async def test_what_has_arrived_before_the_end_is_parsed_before_it(tmp_path: Path) -> None:
    """With TLS a connection is lost although its reading is paused."""
    clock, loop, content = FakeClock(), asyncio.get_running_loop(), b"x 1\n" * 12_000
    async with scraping(tmp_path, [pod := WirePod(None)]):
        with closing(BodyBudget().open("shop")) as buffer:
            body = AnswerBody(buffer, ACCESS)
            transport, connection = await loop.create_connection(
                lambda: PodConnection(loop, FairTurns(clock), clock), "127.0.0.1", pod.endpoint.port
            )
            asking = asyncio.create_task(connection.ask(b"GET / HTTP/1.1\r\n\r\n", body, 1 << 20))
            await asyncio.sleep(0)
            connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n" + content)
            connection.connection_lost(None)
            await asking
            assert body.finish() == content
            assert connection.should_close
            transport.abort()


# -- files --------------------------------------------------------------------------------------------------


async def test_beyond_their_part_of_the_files_connections_are_not_kept(tmp_path: Path) -> None:
    pods = [WirePod(ANSWER) for _ in range(6)]
    async with scraping(tmp_path, pods, files=4) as here:
        for _ in range(3):
            assert {await here.outcome(pod) for pod in pods} == {"x 1\n"}
        await until(lambda: sum(pod.open for pod in pods) == 3)

        assert [pod.connections for pod in pods] == [1, 1, 1, 3, 3, 3], "those that are kept stay"
        text = "half of the 8 files it may open are in use for pods: raise ulimit -Hn"
        assert here.faults.active() == {("scrape-files", ""): text}


async def test_scrapes_take_files_from_kept_connections(tmp_path: Path) -> None:
    kept, slow = [WirePod(ANSWER) for _ in range(3)], [WirePod(None) for _ in range(3)]
    async with scraping(tmp_path, [*kept, *slow], files=4) as here:
        for pod in kept:
            await here.outcome(pod)
        waiting = [asyncio.create_task(here.outcome(pod)) for pod in slow[:2]]
        await until(lambda: sum(pod.open for pod in slow) == 2)
        await until(lambda: sum(pod.open for pod in kept) == 2)

        assert [pod.open for pod in kept] == [0, 1, 1], "the one that is kept longest goes"
        for task in waiting:
            task.cancel()


async def test_a_namespace_whose_pods_do_not_answer_takes_no_file_from_others(tmp_path: Path) -> None:
    slow = [WirePod(None, namespace="slow") for _ in range(5)]
    good = [WirePod(ANSWER, namespace=f"shop-{number}") for number in range(3)]
    async with scraping(tmp_path, [*slow, *good], files=4) as here:
        waiting = [asyncio.create_task(here.outcome(pod)) for pod in slow]
        await until(lambda: sum(pod.open for pod in slow) == 2)
        lost = [task.result() for task in waiting if task.done()]

        assert {await here.outcome(pod) for pod in good} == {"x 1\n"}
        assert lost == ["the connections of the scraped pods of namespace slow take more than 2 files"] * 3
        for task in waiting:
            task.cancel()


async def test_a_scrape_that_ends_already_can_give_way(tmp_path: Path) -> None:
    async with scraping(tmp_path, [pod := WirePod(None)]) as here:
        with closing(BodyBudget().open("shop")) as body:
            fetching = asyncio.create_task(here.scraper.fetch(pod.endpoint, body))
            await until(lambda: pod.open == 1)
            body.lose("the files of connections")
            await asyncio.sleep(0)  # it is being canceled
            body.lose("the memory of bodies")
            with pytest.raises(ScrapeError, match="the memory of bodies"):
                await fetching
