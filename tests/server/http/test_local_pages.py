"""The scaler's local pages: which requests they serve."""

from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp import ClientSession

from adapter.server.health import Health
from adapter.server.http.endpoints import LocalPages
from adapter.telemetry.metrics import Monitoring
from tests.support.answers import answers


async def show(_: Sequence[str], __: str) -> tuple[int, bytes]:
    return 200, b'{"autoscalers": []}'


@pytest.fixture
async def port() -> AsyncIterator[int]:
    pages = LocalPages("127.0.0.1:0", Health(), Monitoring(), show)
    await pages.start()
    try:
        yield pages.port
    finally:
        await pages.stop()


@pytest.mark.parametrize(
    ("headers", "status"), answers("server/local_pages", "a page of another site reads nothing")
)
@pytest.mark.parametrize("path", ["/metrics", "/debug/fastpath/autoscalers", "/readyz"])
async def test_a_page_of_another_site_reads_nothing(
    port: int, path: str, headers: dict[str, str], status: int
) -> None:
    """A browser sends the name that resolves to this address as Host, and where a request comes from."""
    async with (
        ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}{path}", headers=headers) as response,
    ):
        assert response.status == status
        body = await response.text()
    assert ("autoscalers" in body or "fastpath_" in body) == (status == 200 and path != "/readyz")
