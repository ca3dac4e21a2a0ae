"""An answer of Prometheus whose size tenants choose: how many series there are, and how long their labels."""

import pytest

from adapter.compose.clock import SystemClock
from adapter.errors import PrometheusError
from adapter.prometheus.client import PrometheusClient
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.prometheus.scripted import connection_options
from tests.scrape.test_floods import pods, resident, without_collections
from tests.support import steps
from tests.support.clock import WALL

LONGEST_STEP = 0.05  # seconds of processor time; a read of the socket has 256 KiB
MOST_BYTES = 256 * 1024 * 1024  # the limit on an answer, and the text that has arrived
BEGINNING = b'HTTP/1.1 200 OK\r\n\r\n{"status":"success","data":{"resultType":"vector","result":['
SAMPLE = b'{"metric":{%s},"value":[1700000000,"1"]},'
LABELS = b",".join(b'"label_%d":"value \\" of \\u00fc %d"' % (number, number) for number in range(60))
ANSWERS = {
    "series of one label": SAMPLE % b'"pod":"a"',
    "series of 60 labels": SAMPLE % LABELS,
    "long values of labels": SAMPLE % (b'"pod":"%s"' % (b"x" * 100_000)),
    "a value of a label without end": b"x" * 1000,
    "values that look like structure": SAMPLE % (b'"pod":"%s"' % (rb"},{\"m" * 10_000)),
    "brackets": b"[" * 1000,
}


@pytest.mark.parametrize("piece", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.timeout(60)
async def test_a_long_answer_holds_neither_the_loop_nor_memory(piece: bytes) -> None:
    clock, monitoring = SystemClock(), Monitoring()
    beginning = BEGINNING if piece.startswith((b"{", b"[")) else BEGINNING + b'{"metric":{"pod":"'
    with without_collections(), pods(1, beginning, piece) as servers:
        before = resident()
        options = connection_options(f"http://127.0.0.1:{servers[0].port}")
        client = await PrometheusClient.open(options, clock, monitoring, ProblemLog(monitoring, clock))
        with steps.measured() as measured, pytest.raises(PrometheusError) as raised:
            await client.query("load", WALL)
        grown = resident() - before
        await client.close()

    assert raised.value.kind in {"size", "decode", "timeout", "unreachable"}
    assert measured.longest < LONGEST_STEP
    assert grown < MOST_BYTES
