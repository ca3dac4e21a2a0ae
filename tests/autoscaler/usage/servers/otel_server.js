// A web server with OpenTelemetry's exporter for Prometheus, and no process metrics: node otel_server.js PORT
const { PrometheusExporter } = require("@opentelemetry/exporter-prometheus");
const { MeterProvider } = require("@opentelemetry/sdk-metrics");
const serve = require("./served.js");

const exporter = new PrometheusExporter({ preventServerStart: true });
const requests = new MeterProvider({ readers: [exporter] }).getMeter("server").createCounter("requests");
serve((response) => {
  requests.add(1);
  exporter.getMetricsRequestHandler(null, response);
});
