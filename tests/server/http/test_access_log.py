"""The access log: what a line says and never says, and that no request waits for it."""

import asyncio
import functools
import json
import logging
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from adapter import errors
from adapter.model.identity import User
from adapter.server.api.paths import CUSTOM_GROUP
from adapter.server.http import access_log
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import FakeClock
from tests.support.serving import Served, ServerFactory, pod_value

PODS = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/default/pods/%2A/http_requests"


class Memory:
    """A sink that a test reads; fails or blocks when it is told to."""

    def __init__(self) -> None:
        self.text = b""
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def write(self, lines: bytes) -> None:
        self.gate.wait(1.5)
        if self.error is not None:
            raise self.error
        self.text += lines

    @property
    def lines(self) -> list[dict[str, Any]]:
        assert self.text.endswith(b"\n") or not self.text
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def sink() -> Memory:
    return Memory()


@pytest.fixture
async def served(serve: ServerFactory, sink: Memory) -> Served:
    served = await serve(sink=sink.write)
    served.provider.items = (pod_value("web-1", 1500),)
    served.reviews.tokens["s3cret-t0ken"] = User("jane", groups=("system:authenticated",))
    return served


async def logged(served: Served, sink: Memory) -> list[dict[str, Any]]:
    assert served.access_log is not None
    await served.access_log.flush()
    return sink.lines


JANE = {"Authorization": "Bearer s3cret-t0ken"}


async def test_a_line(served: Served, sink: Memory) -> None:
    selector = "labelSelector=app%3Dweb&metricLabelSelector=verb%3DGET"
    answer = await served.get(f"{PODS}?{selector}", headers={**JANE, "Audit-Id": "audit-1"})
    [line] = await logged(served, sink)
    assert line.pop("latencySeconds") >= 0
    assert line == {
        "time": "2023-11-14T22:13:20.000Z",
        "user": "jane",
        "verb": "get",
        "path": PODS,
        "code": 200,
        "bytes": len(answer.body),
        "auditID": "audit-1",
        "labelSelector": "app=web",
        "metricLabelSelector": "verb=GET",
    }


async def test_nothing_secret_is_logged(served: Served, sink: Memory) -> None:
    headers = {
        **JANE,
        "X-Remote-User": "s3cret-user",
        "X-Remote-Group": "s3cret-group",
        "X-Remote-Extra-Scopes": "s3cret-extra",
        "Cookie": "s3cret-cookie",
        "User-Agent": "s3cret-agent",
    }
    for target in (
        f"{PODS}?token=s3cret-query&labelSelector=app%3Dweb&access_token=s3cret-query",
        "http://jane:s3cret-password@localhost/apis?s3cret-key",
        "ftp://jane:s3cret-password@localhost/s3cret",
        "/readyz?exclude=s3cret",
    ):
        await served.get(target, headers=headers)
    lines = await logged(served, sink)
    assert b"s3cret" not in sink.text
    assert [line["path"] for line in lines] == [PODS, "/apis", "", "/readyz"]


async def test_not_asked_for(serve: ServerFactory) -> None:
    served = await serve()
    assert (await served.get("/apis")).status == 200
    assert served.access_log is None


# --- writing


def running(served: Served) -> asyncio.Task[None]:
    assert served.access_log is not None
    return asyncio.create_task(served.access_log.run())


async def test_lines_are_written_while_it_runs(served: Served, sink: Memory) -> None:
    task = running(served)
    try:
        for count in (1, 2):
            await served.get("/readyz")
            async with asyncio.timeout(1.5):
                while len(sink.lines) < count:  # noqa: ASYNC110 - a thread sets no event of ours
                    await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_reader_that_is_slow_costs_lines_and_no_request(
    served: Served, sink: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "ROOM", 1000)
    sink.gate.clear()
    task = running(served)
    for _ in range(20):
        assert (await served.get("/readyz")).status == 200
    dropped = served.monitoring.registry.get_sample_value("fastpath_access_log_dropped_total")
    assert dropped
    task.cancel()
    sink.gate.set()
    await asyncio.gather(task, return_exceptions=True)
    assert len(await logged(served, sink)) == 20 - dropped, "what was taken is written, whole and in order"


async def test_a_failed_sink_is_reported_once_and_affects_no_request(
    served: Served, sink: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sink.error = OSError(28, "No space left on device")
    for _ in range(2):
        assert (await served.get("/readyz")).status == 200
        await logged(served, sink)
    assert served.monitoring.registry.get_sample_value("fastpath_access_log_dropped_total") == 2
    assert [record.message for record in caplog.records].count("access log cannot be written") == 1
    sink.error = None
    await served.get("/readyz")
    assert len(await logged(served, sink)) == 1
    assert "fault ended" in [record.message for record in caplog.records]


def test_a_file_is_made_for_its_owner_and_may_be_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    sink = access_log.open_sink(str(path))
    sink(b"one\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.rename(tmp_path / "access.log.1")
    sink(b"two\n")
    assert path.read_bytes() == b"two\n"


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError) as raised:
        access_log.open_sink(str(tmp_path))
    assert str(raised.value).startswith(f"--access-log: {tmp_path}: expected stdout, stderr, or a file")


@pytest.mark.parametrize("stream", access_log.STREAMS)
async def test_streams(stream: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    access_log.open_sink(stream)(b"line\n")
    assert getattr(capfdbinary.readouterr(), {"stdout": "out", "stderr": "err"}[stream]) == b"line\n"


async def test_a_stream_that_was_closed(tmp_path: Path) -> None:
    monitoring = Monitoring()
    with (tmp_path / "x").open("wb") as file:
        sink = functools.partial(access_log.write_stream, file)
        log = access_log.AccessLog(sink, FakeClock(), monitoring, ProblemLog(monitoring, FakeClock()))
    await log.flush()
    log._waiting.append(b"{}")
    await log.flush()
    assert monitoring.registry.get_sample_value("fastpath_access_log_dropped_total") == 1
