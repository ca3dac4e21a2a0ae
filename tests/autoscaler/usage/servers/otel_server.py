"""A web server with metrics of OpenTelemetry alone: `otel_server PORT [system]`.

Its Prometheus exporter has a registry of its own, so that prometheus-client's process collector is not in it.
With `system` the instrumentation of OpenTelemetry for system metrics adds the time of the process.
"""

import sys
from collections.abc import Iterable
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, make_wsgi_app

from tests.autoscaler.usage.servers.python_server import Application, serve, work

registry = CollectorRegistry()
_metrics: Application = make_wsgi_app(registry)


def application(environ: dict[str, str], start_response: Any) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/metrics":
        return _metrics(environ, start_response)
    requests.add(1)
    return work(environ, start_response)


if __name__ == "__main__":
    provider = MeterProvider([PrometheusMetricReader(registry=registry)])
    requests = provider.get_meter("server").create_counter("requests")
    if sys.argv[2:] == ["system"]:
        from opentelemetry.instrumentation.system_metrics import SystemMetricsInstrumentor

        SystemMetricsInstrumentor(config={"process.cpu.time": ["user", "system"]}).instrument(
            meter_provider=provider
        )
    serve(int(sys.argv[1]), application)
