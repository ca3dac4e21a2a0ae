"""The ConfigMap and the files with the authorities: read, watched, read again, and never a reason to end."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapter.errors import InputError
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.trust_sources import ConfigMapTrustSource, FileTrustSource
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import connected
from tests.support import waiting
from tests.support.certificates import NAME, config_map_object
from tests.support.clock import FakeClock
from tests.support.waiting import running

Entries = Mapping[str, str] | None


class TrustReading:
    """A running source, and what it delivered. While `broken`, a delivery fails."""

    def __init__(self, context: ReflectorContext) -> None:
        self.source = ConfigMapTrustSource(context, self._take)
        self.delivered: list[Entries] = []
        self.broken = False

    def _take(self, entries: Entries) -> None:
        if self.broken:
            raise ZeroDivisionError
        self.delivered.append(entries)

    async def delivers(self, entries: Entries) -> None:
        await waiting.until(lambda: self.delivered and self.delivered[-1] == entries)


Open = Callable[[], contextlib.AbstractAsyncContextManager[TrustReading]]


@pytest.fixture
def reading(cluster: Cluster, faults: ProblemLog, clock: FakeClock) -> Open:
    async def pause(seconds: float) -> None:
        clock.advance(seconds)
        await asyncio.sleep(0.005)

    @contextlib.asynccontextmanager
    async def read() -> AsyncIterator[TrustReading]:
        async with connected(cluster.url, pause) as client:
            context = ReflectorContext(client, clock, Monitoring(), faults, lambda: 0.0, pause)
            found = TrustReading(context)
            async with running(found.source.run()):
                yield found

    return read


def publish(cluster: Cluster, **entries: str) -> None:
    if any(each["metadata"]["name"] == NAME for each in cluster.list("ConfigMap", "kube-system")):
        current = cluster.get("ConfigMap", NAME, "kube-system")
        cluster.update(current | {"data": entries})
    else:
        cluster.create(config_map_object(entries))


def other(cluster: Cluster, name: str) -> None:
    metadata = {"name": name, "namespace": "kube-system"}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "y"}})


async def test_the_config_map_and_its_changes_are_delivered(
    cluster: Cluster, faults: ProblemLog, reading: Open
) -> None:
    other(cluster, "another")
    publish(cluster, a="1")
    async with reading() as found:
        await found.delivers({"a": "1"})
        await waiting.until(lambda: cluster.open_watches)
        publish(cluster, a="2", b="3")
        await found.delivers({"a": "2", "b": "3"})
        count = len(found.delivered)
        other(cluster, "third")
        publish(cluster)
        await found.delivers({})
        assert len(found.delivered) == count + 1, "changes of other objects are not delivered"
    assert found.source.fault == ""
    assert faults.active() == {}


async def test_only_this_one_is_asked_for(cluster: Cluster, reading: Open) -> None:
    publish(cluster, a="1")
    async with reading() as found:
        await found.delivers({"a": "1"})
        await waiting.until(lambda: cluster.open_watches)
    assert [request.verb for request in cluster.requests] == ["list", "watch"]
    assert {request.namespace for request in cluster.requests} == {"kube-system"}
    assert {request.query["fieldSelector"] for request in cluster.requests} == {f"metadata.name={NAME}"}


async def test_an_absent_config_map_is_delivered_as_none(cluster: Cluster, reading: Open) -> None:
    async with reading() as found:
        await found.delivers(None)
        await waiting.until(lambda: cluster.open_watches)
        publish(cluster, a="1")
        await found.delivers({"a": "1"})
        cluster.delete("ConfigMap", NAME, "kube-system")
        await found.delivers(None)
        assert found.source.fault == ""


async def test_missing_rights_name_the_role_binding(
    cluster: Cluster, faults: ProblemLog, reading: Open
) -> None:
    publish(cluster, a="1")
    cluster.forbid("list", "configmaps")
    async with reading() as found:
        await waiting.until(lambda: found.source.fault)
        assert found.delivered == []
        assert "403" in found.source.fault
        assert "bind the Role extension-apiserver-authentication-reader in kube-system" in found.source.fault
        assert list(faults.active()) == [("informer", f"configmap kube-system/{NAME}")]
        cluster.allow("list", "configmaps")
        await found.delivers({"a": "1"})
        await waiting.until(lambda: not found.source.fault)
    assert faults.active() == {}


async def test_what_cannot_be_read_is_not_absent(cluster: Cluster, reading: Open) -> None:
    cluster.create(config_map_object({}) | {"data": {"a": 5}})
    async with reading() as found:
        await waiting.until(lambda: cluster.open_watches)
        assert not found.delivered
        assert found.source.fault.startswith("the ConfigMap cannot be read: ValidationError: ")
        publish(cluster, a="1")
        await found.delivers({"a": "1"})
        assert found.source.fault == ""
    assert found.delivered == [{"a": "1"}]


async def test_what_could_not_be_delivered_is_delivered_again(
    cluster: Cluster, faults: ProblemLog, reading: Open
) -> None:
    publish(cluster, a="1")
    cluster.forbid("watch", "configmaps")
    problem = ("object", f"configmap kube-system/{NAME} kube-system/{NAME}")

    def lists() -> int:
        return sum(request.verb == "list" for request in cluster.requests)

    async with reading() as found:
        await found.delivers({"a": "1"})
        found.broken = True
        publish(cluster, a="2")
        await waiting.until(lambda: problem in faults.active())
        count = lists()
        await waiting.until(lambda: lists() > count + 2)
        assert problem in faults.active(), "the same object again does not end it"
        found.broken = False
        await found.delivers({"a": "2"})
        await waiting.until(lambda: problem not in faults.active())
        count = lists()
        await waiting.until(lambda: lists() > count + 2)
    assert found.delivered == [{"a": "1"}, {"a": "2"}]


# -- files ---------------------------------------------------------------------------------------------------


class Taker:
    """Takes every text but one."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def __call__(self, text: str) -> None:
        if text == "bad":
            raise ValueError("it is bad")
        self.taken.append(text)


def test_a_link_that_is_swapped(tmp_path: Path, faults: ProblemLog) -> None:
    taker = Taker()
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    (tmp_path / "ca.crt").symlink_to("one")
    source = FileTrustSource(str(tmp_path / "ca.crt"), "--client-ca-file", taker, faults)
    (tmp_path / "new").symlink_to("two")
    os.replace(tmp_path / "new", tmp_path / "ca.crt")  # noqa: PTH105 - as the kubelet does
    source.poll()
    assert taker.taken == ["one", "two"]


@pytest.mark.parametrize("broken", ["bad", None, b"\xff"])
def test_a_file_that_is_no_good_later(tmp_path: Path, faults: ProblemLog, broken: Any) -> None:
    path, taker = tmp_path / "ca.crt", Taker()
    path.write_text("one")
    source = FileTrustSource(str(path), "--client-ca-file", taker, faults)
    if broken is None:
        path.unlink()
    elif isinstance(broken, bytes):
        path.write_bytes(broken)
    else:
        path.write_text(broken)
    source.poll()
    assert taker.taken == ["one"]
    assert list(faults.active()) == [("trust-file", "--client-ca-file")]
    path.write_text("good again")
    source.poll()
    assert taker.taken == ["one", "good again"]
    assert faults.active() == {}


@pytest.mark.parametrize(("text", "reason"), [("bad", "it is bad"), (None, "No such file or directory")])
def test_a_file_that_is_no_good_at_the_start(
    tmp_path: Path, faults: ProblemLog, text: str | None, reason: str
) -> None:
    path = tmp_path / "ca.crt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(
        InputError, match=f"--client-ca-file: .*expected a file with PEM certificates: {reason}"
    ):
        FileTrustSource(str(path), "--client-ca-file", Taker(), faults)


async def test_a_file_is_followed(tmp_path: Path, faults: ProblemLog) -> None:
    path, taker, pauses = tmp_path / "ca.crt", Taker(), list[float]()
    path.write_text("one")
    source = FileTrustSource(str(path), "--client-ca-file", taker, faults)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0.001)

    async with running(source.run(pause)):
        path.write_text("other")
        await waiting.until(lambda: taker.taken == ["one", "other"])
    assert set(pauses) == {1.0}
