"""What a process needs to ask a Prometheus for ranges. Without the libraries that do it: it travels."""

import msgspec

from adapter.prometheus.connection import PrometheusConnection
from adapter.prometheus.endpoint import PrometheusEndpoint, TLSFiles


class RangeServer(msgspec.Struct, frozen=True):
    """A Prometheus, as a range query needs it. `headers` and `proxy` hold secrets.

    `timeout` bounds a query, in seconds, and `max_bytes` its answer.
    """

    endpoint: PrometheusEndpoint
    tls: TLSFiles
    headers: dict[str, str]
    proxy: str
    timeout: float
    max_bytes: int

    @classmethod
    async def of(cls, origin: PrometheusConnection, seconds: float) -> "RangeServer":
        """Return the server of a connection, with the headers of this moment."""
        headers = await origin.request_headers()
        most = origin.settings.max_answer_bytes
        return cls(origin.endpoint, origin.tls, headers, origin.proxy, seconds, most)
