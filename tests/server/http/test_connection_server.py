"""The listener, the HTTP layer's own answers, the orderly end, and the real kubectl."""

import asyncio
import contextlib
import ssl

import pytest

from adapter.model.identity import User
from adapter.model.metrics import CustomMetricInfo, ExternalValue, GroupResource
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP
from adapter.server.http.connection_server import MetricsServer
from tests.support import waiting
from tests.support.kubectl import TOKEN, Kubectl
from tests.support.serving import Served, ServerFactory, pod_value
from tests.support.tls import Authority

PODS = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/default/pods/%2A/http_requests"


async def test_only_tls(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    with contextlib.suppress(ConnectionResetError):
        assert not (await reader.read()).startswith(b"HTTP/")
    writer.close()


async def test_http_1_1_is_offered(served: Served, authority: Authority) -> None:
    trust = authority.client_context()
    trust.set_alpn_protocols(["h2", "http/1.1"])
    connection = await served.connect(trust)
    found: ssl.SSLObject = connection.writer.get_extra_info("ssl_object")
    assert found.selected_alpn_protocol() == "http/1.1"


async def test_old_tls_is_refused(served: Served, authority: Authority) -> None:
    trust = authority.client_context()
    trust.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        trust.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await served.connect(trust)


async def test_a_port_that_is_taken(served: Served) -> None:
    second = MetricsServer(
        served.handler, served.certificate, served.server._shutdown, host="127.0.0.1", port=served.server.port
    )
    with pytest.raises(OSError, match="address already in use"):
        await second.start()
    assert not second.listening
    await second.stop()


async def test_orderly_end(serve: ServerFactory) -> None:
    served = await serve(shutdown_delay=0.1)
    assert served.server.listening
    pooled = await served.connect()
    assert "connection" not in (await pooled.request("/readyz")).headers
    idle = await served.connect()
    release = served.provider.hold()
    async with asyncio.TaskGroup() as group:
        in_flight = group.create_task(served.get(PODS))
        await waiting.until(lambda: served.provider.questions)
        stopping = group.create_task(served.server.stop())
        await asyncio.sleep(0)

        late = await served.connect()
        unready = await late.request("/readyz")
        assert (unready.status, unready.headers["connection"]) == (500, "close")
        assert "[-]shutdown failed: reason withheld" in unready.text
        assert (await pooled.request("/livez")).headers["connection"] == "close", "alive, and asks to leave"
        assert await pooled.closed()

        assert await idle.closed(), "idle connections close when the delay is over"
        with pytest.raises(OSError):  # noqa: PT011 - refused, reset or unreachable, as the system words it
            await served.connect()
        assert not stopping.done()
        release.set()
    assert in_flight.result().status == 200, "what was in flight is answered"
    assert not served.server.listening


async def test_the_delay_counts_from_the_beginning_of_the_end(serve: ServerFactory) -> None:
    """Time that the scaler took to end is time in which endpoints were removed."""
    served = await serve(shutdown_delay=1000.0)
    shutdown = served.server._shutdown
    shutdown.begin()
    assert shutdown._begun is not None
    shutdown._begun -= 1000.0
    shutdown.begin()
    async with asyncio.timeout(1):
        await served.server.stop()
    assert not served.server.listening


async def test_a_changed_pair_is_followed_while_connections_stay(
    serve: ServerFactory, authority: Authority
) -> None:
    first, second = authority.issue(), authority.issue("localhost", "127.0.0.1", "second.test")
    served = await serve(pair=first)
    old = await served.connect()
    assert (await old.request("/livez")).status == 200
    first.key.write_bytes(second.key.read_bytes())
    assert not served.certificate.reload_if_changed(), "half a change does not count"
    between = await served.connect()
    first.certificate.write_bytes(second.certificate.read_bytes())
    assert served.certificate.reload_if_changed()
    new = await served.connect()

    def names(connection: object) -> set[str]:
        certificate = connection.writer.get_extra_info("peercert")  # type: ignore[attr-defined]
        return {value for kind, value in certificate["subjectAltName"] if kind == "DNS"}

    assert ["second.test" in names(each) for each in (old, between, new)] == [False, False, True]
    assert (await old.request("/livez")).status == 200


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_kubectl(served: Served, kubectl: Kubectl, authority: Authority) -> None:
    served.reviews.tokens[TOKEN] = User("some-user")
    served.provider.metrics = [
        CustomMetricInfo(GroupResource("", "pods"), namespaced=True, metric="http_requests")
    ]
    served.provider.items = (pod_value("web-1", 1500), pod_value("web-2", 250))
    served.provider.external_items = (ExternalValue("queue_depth", {"queue": "a"}, 42_000, 1_700_000_000.0),)

    target = (
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/http_requests?labelSelector=app%3Dweb"
    )
    listed = await kubectl.get_raw(served.url, target)
    assert [item["value"] for item in listed["items"]] == ["1500m", "250m"]
    queue = await kubectl.get_raw(
        served.url, "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_depth", ca=authority.file
    )
    assert queue["items"][0]["value"] == "42"

    wrong = await kubectl.run(
        served.url, "get", "--raw", f"/apis/{CUSTOM_GROUP}/v1beta2/nodes/n/m?labelSelector=a+in+b"
    )
    assert wrong.status == 1
    assert (
        "Error from server (BadRequest): unable to parse requirement: found 'b' expected: '('" in wrong.stderr
    )

    resources = await kubectl.run(
        served.url, "api-resources", "--no-headers", f"--api-group={EXTERNAL_GROUP}"
    )
    assert "externalmetrics" in resources.stdout
    assert resources.status == 0, resources.stderr
    assert "warning" not in resources.stderr.lower()
    version = await kubectl.run(served.url, "version")
    assert "Server Version: v1.2.3" in version.stdout
