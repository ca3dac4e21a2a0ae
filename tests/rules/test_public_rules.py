"""Configurations that people have published: each loads, and asks what prometheus-adapter would ask.

The files are other people's and not part of this repository. What is expected of them stands here.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapter.config import rules_file
from adapter.config.rules_file import Parsed
from adapter.errors import NotFoundError
from adapter.model.metrics import CustomQuestion, ExternalQuestion
from adapter.model.resources import BUILTIN
from adapter.rules.compile import Ruleset, compile_rules
from fastpath_tools.live import chart_values as helm_values
from tests.support.world import question, series, vector, world

FOLDER = Path(__file__).parents[3] / "shared" / "conformance" / "rules"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no public configurations in {FOLDER}")


@dataclass(frozen=True)
class Asked:
    """A series of a rule's selector, the served metric, one request and its query (None: none is sent).

    `rule` is the index among the custom (or external) rules, `labels` the label names of the series.
    """

    rule: int
    name: str
    labels: str
    served: str
    request: str
    promql: str | None
    api: str = "custom"
    listed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expected:
    """What a file holds: how many rules, of which shape it is, and questions."""

    custom: int
    external: int
    asked: tuple[Asked, ...]
    is_chart: bool = True
    resource_rules: bool = False


# A chart adds its six default rules before the custom ones unless `rules.default` is false or null.
DEFAULTS = 6

FILES: Mapping[str, Expected] = {
    "celery-queue-external": Expected(
        0,
        1,
        (
            Asked(
                0,
                "celery_queue_length",
                "kubernetes_namespace queue",
                "celery_queue_length",
                "/namespaces/shop/celery_queue_length?labelSelector=queue%3Dmail",
                'celery_queue_length{queue="mail",kubernetes_namespace="shop"}',
                api="external",
            ),
        ),
    ),
    "cross-namespace-external": Expected(
        DEFAULTS,
        1,
        (Asked(0, "foobar", "namespace", "foobar", "/namespaces/web/foobar", "foobar", api="external"),),
    ),
    "devopsbox-istio": Expected(
        DEFAULTS + 1,
        0,
        (
            Asked(
                DEFAULTS,
                "istio_requests_total",
                "kubernetes_namespace kubernetes_pod_name",
                "namespaces/istio_requests_per_second pods/istio_requests_per_second",
                "/namespaces/web/pods/*/istio_requests_per_second",
                'sum(rate(istio_requests_total{kubernetes_namespace="web",kubernetes_pod_name=~"a|b"}[2m])) '
                "by (kubernetes_pod_name)",
                listed=("a", "b"),
            ),
        ),
    ),
    "elastic-inference-quantile": Expected(
        1,
        0,
        (
            Asked(
                0,
                "inference_processing_seconds_bucket",
                "namespace pod le",
                "namespaces/inference_processing_seconds pods/inference_processing_seconds",
                "/namespaces/web/pods/a/inference_processing_seconds",
                "histogram_quantile(\n0.99,\nsum(\n"
                '  rate(inference_processing_seconds_bucket{namespace="web",pod="a"}[1m])\n) by (pod, '
                "le)\n)\n",
            ),
        ),
    ),
    "google-managed-prometheus": Expected(
        1,
        1,
        (
            Asked(
                0,
                "http_requests_total",
                "namespace pod code",
                "namespaces/http_requests_per_second pods/http_requests_per_second",
                "/namespaces/web/pods/*/http_requests_per_second?metricLabelSelector=code%20in%20(500,200)",
                'sum(rate(http_requests_total{code=~"200|500",namespace="web",pod=~"a|b"}[5m])) by (pod)',
                listed=("a", "b"),
            ),
            Asked(
                0,
                "logging_googleapis_com:byte_count",
                "cluster_name monitored_resource",
                "logging_googleapis_com_k8s_cluster_bytes_per_second",
                "/namespaces/web/logging_googleapis_com_k8s_cluster_bytes_per_second",
                'sum(rate(logging_googleapis_com:byte_count{monitored_resource="k8s_cluster"}[5m])) by '
                "(cluster_name)",
                api="external",
            ),
        ),
        is_chart=False,
    ),
    "hazelcast-jvm-heap": Expected(
        DEFAULTS + 1,
        0,
        (
            Asked(
                DEFAULTS,
                "jvm_memory_bytes_used",
                "kubernetes_namespace kubernetes_pod_name kubernetes_name area",
                "namespaces/on_heap_ratio pods/on_heap_ratio services/on_heap_ratio",
                "/namespaces/web/services/cache/on_heap_ratio",
                'max(jvm_memory_bytes_used{kubernetes_namespace="web",kubernetes_name="cache"}'
                '/jvm_memory_bytes_max{kubernetes_namespace="web",kubernetes_name="cache"}) by '
                "(kubernetes_name)",
            ),
        ),
    ),
    "homeops-mcfio-nfs-ready": Expected(
        0,
        1,
        (
            Asked(
                0,
                "kube_pod_status_ready",
                "namespace pod condition",
                "nfs_server_ready",
                "/namespaces/web/nfs_server_ready?labelSelector=condition%3Dtrue",
                'max(kube_pod_status_ready{condition="true"})',
                api="external",
            ),
        ),
    ),
    "hubble-istio-thesis": Expected(
        10,
        0,
        (
            Asked(
                0,
                "hubble_flows_processed_total",
                "destination_namespace destination_workload",
                "namespaces/hubble_flows_per_workload deployments.apps/hubble_flows_per_workload "
                "namespaces/hubble_flows_per_pod deployments.apps/hubble_flows_per_pod",
                "/namespaces/shop/deployments.apps/cart/hubble_flows_per_workload",
                'sum(rate(hubble_flows_processed_total{destination_namespace="shop",'
                'destination_workload="cart"}[30s]))'
                " by (destination_workload)",
            ),
            Asked(
                1,
                "hubble_flows_processed_total",
                "destination_namespace destination_workload",
                "namespaces/hubble_flows_per_workload deployments.apps/hubble_flows_per_workload "
                "namespaces/hubble_flows_per_pod deployments.apps/hubble_flows_per_pod",
                "/namespaces/shop/deployments/cart/hubble_flows_per_pod",
                'sum(rate(hubble_flows_processed_total{destination_namespace="shop",'
                'destination_workload="cart"}[30s]))'
                " by (destination_workload) / (\n"
                "  count by (destination_workload) (\n"
                "    label_replace(\n"
                '      kube_pod_owner{owner_kind=~"(ReplicaSet|StatefulSet)"},\n'
                '      "destination_workload", "$1", "owner_name", "^(.*?)(-[a-z0-9]+)?$"\n'
                "    )\n"
                "  ) or vector(1)\n"
                ")\n",
            ),
            Asked(
                4,
                "hubble_http_requests_total",
                "destination_namespace destination_workload status",
                "namespaces/hubble_http_5XX_response_ratio deployments.apps/hubble_http_5XX_response_ratio",
                "/namespaces/shop/deployments.apps/cart/hubble_http_5XX_response_ratio",
                "(\n"
                '  sum(rate(hubble_http_requests_total{destination_namespace="shop",'
                'destination_workload="cart", status=~"5.."}[30s])) by (destination_workload)\n'
                "/\n"
                '  sum(rate(hubble_http_requests_total{destination_namespace="shop",'
                'destination_workload="cart"}[30s])) by (destination_workload)\n'
                ') or sum(rate(hubble_http_requests_total{destination_namespace="shop",'
                'destination_workload="cart"}[30s]))'
                " by (destination_workload)  * 0\n",
            ),
            Asked(
                9,
                "istio_requests_total",
                "destination_workload_namespace destination_workload",
                "namespaces/istio_5xx_error_ratio deployments.apps/istio_5xx_error_ratio",
                "/namespaces/shop/deployments.apps/cart/istio_5xx_error_ratio",
                '( sum(rate(istio_requests_total{destination_workload_namespace="shop",'
                'destination_workload="cart", response_code=~"5.."}[30s]))'
                " by (destination_workload_namespace, destination_workload)"
                ' / sum(rate(istio_requests_total{destination_workload_namespace="shop",'
                'destination_workload="cart",}[30s]))'
                " by (destination_workload_namespace, destination_workload)"
                ' ) or sum(rate(istio_requests_total{destination_workload_namespace="shop",'
                'destination_workload="cart"}[30s]))'
                " by (destination_workload_namespace, destination_workload)  * 0\n",
            ),
        ),
    ),
    "ingress-nginx-paths": Expected(
        8,
        0,
        (
            Asked(
                0,
                "nginx_ingress_controller_requests",
                "exported_namespace exported_service path status",
                "namespaces/nginx_requests_auth_login services/nginx_requests_auth_login",
                "/namespaces/web/services/api/nginx_requests_auth_login",
                "sum(rate(nginx_ingress_controller_requests{path='/auth/login',status=~'2..'}[1m])) by "
                "(exported_namespace, exported_service)",
            ),
            Asked(
                7,
                "nginx_ingress_controller_request_duration_seconds_bucket",
                "exported_namespace exported_service le",
                "namespaces/nginx_requests_95 services/nginx_requests_95",
                "/namespaces/web/services/*/nginx_requests_95",
                "histogram_quantile(0.95, "
                "sum(rate(nginx_ingress_controller_request_duration_seconds_bucket[1m]))"
                " by (le, exported_namespace, exported_service))",
                listed=("api",),
            ),
        ),
        is_chart=False,
    ),
    "intel-platform-aware-scheduling": Expected(
        7,
        0,
        (
            Asked(
                0,
                "container_cpu_usage_seconds_total",
                "namespace pod_name container_name",
                # by the first rule alone: the filters of the others keep it out
                "namespaces/cpu_usage pods/cpu_usage",
                "/namespaces/web/pods/a/cpu_usage",
                'sum(rate(container_cpu_usage_seconds_total{namespace="web",'
                'pod_name="a",container_name!="POD"}[1m])) by (pod_name)',
            ),
            Asked(
                5,
                "node_load1",
                "instance job",
                "nodes/load1",
                "/nodes/*/load1",
                "node_load1",
                listed=("n1", "n2"),
            ),
            Asked(
                6,
                "work_seconds_total",
                "namespace pod",
                "namespaces/work pods/work",
                "/namespaces/web/pods/a/work",
                # no PromQL; Prometheus says so
                'sum(work_seconds_total{namespace="web",pod="a"}[1m]) by (pod)',
            ),
        ),
        is_chart=False,
    ),
    "k8s-gpu-hpa-dcgm": Expected(
        DEFAULTS + 1,
        0,
        (
            Asked(
                DEFAULTS,
                "dcgm_gpu_utilization",
                "namespace pod gpu",
                "namespaces/dcgm_gpu_utilization pods/dcgm_gpu_utilization",
                "/namespaces/web/pods/a/dcgm_gpu_utilization",
                None,  # there is no query
            ),
        ),
    ),
    "kube-prometheus-custom": Expected(
        6,
        0,
        (
            Asked(
                1,
                "container_network_receive_bytes_total",
                "namespace pod container",
                "namespaces/network_receive_bytes pods/network_receive_bytes",
                "/namespaces/web/pods/a/network_receive_bytes",
                'sum(rate(container_network_receive_bytes_total{namespace="web",'
                'pod="a",container!="POD"}[1m])) by (pod)',
            ),
            Asked(
                2,
                "container_memory_rss",
                "namespace pod container",
                "namespaces/memory_rss pods/memory_rss",
                "/namespaces/web/metrics/memory_rss",
                'sum(container_memory_rss{namespace="web",container!="POD"}) by (namespace)',
            ),
            Asked(
                3,
                "queue_length",
                "namespace service job",
                "namespaces/queue_length services/queue_length jobs.batch/queue_length",
                "/namespaces/web/jobs.batch/nightly/queue_length",
                'sum(queue_length{namespace="web",job="nightly"}) by (job)',
            ),
        ),
        is_chart=False,
        resource_rules=True,
    ),
    "kubernetes-blog-scale-to-zero": Expected(
        0,
        1,
        (
            Asked(
                0,
                "queue_consumer_lag",
                "name namespace",
                "queue_consumer_lag",
                "/namespaces/web/queue_consumer_lag?labelSelector=name%20notin%20(a),topic",
                'sum(queue_consumer_lag{name!~"a",topic!="",namespace="web"}) by (name)',
                api="external",
            ),
        ),
        is_chart=False,
    ),
    "login-gov-loadtest": Expected(
        DEFAULTS + 1,
        0,
        (
            Asked(
                DEFAULTS,
                "http_connections",
                "namespace pod",
                "namespaces/http_connections pods/http_connections",
                "/namespaces/web/pods/*/http_connections?labelSelector=app%3Didp",
                'avg(http_connections{namespace="web",pod=~"idp-1|idp-0"}) by (pod)',
                listed=("idp-1", "idp-0"),
            ),
        ),
    ),
    "ollama-delay": Expected(
        DEFAULTS + 1,
        0,
        (
            Asked(
                DEFAULTS,
                "ollama_avg_delay_seconds",
                "namespace",
                "namespaces/ollama_avg_delay_seconds",
                "/namespaces/llm/metrics/ollama_avg_delay_seconds",
                "avg(ollama_avg_delay_seconds)",
            ),
        ),
    ),
    "openshift-istio-hpa": Expected(
        2,
        0,
        (
            Asked(
                0,
                "istio_requests_total",
                "destination_service_namespace destination_service_name response_code",
                "namespaces/istio_requests_per_second services/istio_requests_per_second",
                "/namespaces/web/services/api/istio_requests_per_second",
                'round(sum(irate(istio_requests_total{reporter="destination",'
                'destination_service_namespace="web",destination_service_name="api"'
                ',response_code!~"5.*"}[5m])) by (destination_service_name), 0.001)',
            ),
            Asked(
                1,
                "istio_request_duration_seconds_bucket",
                "destination_service_namespace destination_service_name le",
                "namespaces/istio_request_duration_seconds_p90 services/istio_request_duration_seconds_p90",
                "/namespaces/web/services/api/istio_request_duration_seconds_p90",
                "histogram_quantile(0.90, "
                'sum(rate(istio_request_duration_seconds_bucket{reporter="destination",'
                'destination_service_namespace="web"'
                ',destination_service_name="api",response_code!~"5.*"}[1m])) by '
                "(le,destination_service_name))",
            ),
        ),
        is_chart=False,
    ),
    "rocm-doks-cpu": Expected(
        1,
        0,
        (
            Asked(
                0,
                "container_cpu_usage_seconds_total",
                "namespace pod container",
                "namespaces/container_cpu_usage_seconds_per_second "
                "pods/container_cpu_usage_seconds_per_second",
                "/namespaces/web/pods/*/container_cpu_usage_seconds_per_second",
                'sum(rate(container_cpu_usage_seconds_total{container!="",pod!=""}[2m])) by (namespace,pod)',
                listed=("a", "b"),
            ),
        ),
    ),
    "temporal-worker-controller": Expected(
        DEFAULTS,
        2,
        (
            Asked(
                0,
                "temporal_slot_utilization",
                "namespace worker",
                "temporal_slot_utilization",
                "/namespaces/web/temporal_slot_utilization?labelSelector=worker%3Da",
                'avg(temporal_slot_utilization{worker="a",namespace="web"})',
                api="external",
            ),
            Asked(
                1,
                "temporal_backlog_count_by_version",
                "namespace version",
                "temporal_backlog_count_by_version",
                "/namespaces/web/temporal_backlog_count_by_version",
                'sum(temporal_backlog_count_by_version{namespace="web"})',
                api="external",
            ),
        ),
    ),
    "triton-onprem": Expected(
        DEFAULTS + 1,
        0,
        (
            Asked(
                DEFAULTS,
                "nv_inference_queue_duration_us",
                "namespace pod model",
                "namespaces/avg_time_queue_us pods/avg_time_queue_us",
                "/namespaces/default/pods/*/avg_time_queue_us",
                'avg(delta(nv_inference_queue_duration_us{namespace="default",pod=~"a|b"}[30s])'
                '/(1+delta(nv_inference_request_success{namespace="default",pod=~"a|b"}[30s]))) by (pod)',
                listed=("a", "b"),
            ),
        ),
    ),
    "vllm-production-stack": Expected(
        DEFAULTS + 2,
        0,
        (
            Asked(
                DEFAULTS,
                "vllm:num_requests_waiting",
                "namespace pod model",
                "namespaces/vllm_num_requests_waiting",
                "/namespaces/llm/metrics/vllm_num_requests_waiting",
                "sum by(namespace) (vllm:num_requests_waiting)",
            ),
            Asked(
                DEFAULTS + 1,
                "vllm:num_incoming_requests_total",
                "namespace pod model",
                "namespaces/vllm_num_incoming_requests_total",
                "/namespaces/llm/metrics/vllm_num_incoming_requests_total",
                "sum by(namespace, model) (vllm:num_incoming_requests_total)",
            ),
        ),
    ),
    "wso2-api-operator": Expected(
        2,
        0,
        (
            Asked(
                0,
                "shop_http_requests_total",
                "namespace pod http_url",
                "namespaces/shop_http_requests_total_per_second pods/shop_http_requests_total_per_second",
                "/namespaces/web/pods/a/shop_http_requests_total_per_second",
                'sum(rate(shop_http_requests_total{namespace="web",pod="a",http_url!=""}[1m])) by (pod)',
            ),
            Asked(
                1,
                "http_requests_total_value",
                "namespace pod http_url",
                "namespaces/http_requests_total_value_per_second pods/http_requests_total_value_per_second",
                "/namespaces/web/pods/a/http_requests_total_value_per_second",
                'sum(rate(http_requests_total_value{namespace="web",'
                'pod="a",http_url!~"(/health|/metrics)"}[1m])) by (pod)',
            ),
        ),
        is_chart=False,
    ),
}


def parse(name: str) -> Parsed:
    text = (FOLDER / f"{name}.yaml").read_text()
    assert helm_values.is_chart_values(text) == FILES[name].is_chart
    return (helm_values.rules_from_chart if FILES[name].is_chart else rules_file.parse_rules)(text, name)


def compiled(name: str) -> Ruleset:
    ruleset, faults = compile_rules(parse(name).config, BUILTIN)
    assert faults == ()
    return ruleset


def test_every_file_is_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_loads(name: str) -> None:
    parsed = parse(name)
    assert (parsed.faults, parsed.fatal) == ((), ())
    assert (parsed.config.resource_rules is not None) == FILES[name].resource_rules
    ruleset = compiled(name)
    assert (len(ruleset.custom), len(ruleset.external)) == (FILES[name].custom, FILES[name].external)


@pytest.mark.parametrize("name", [name for name in FILES if FILES[name].is_chart])
def test_what_the_chart_would_write_means_the_same(name: str) -> None:
    rendered = helm_values.render_config((FOLDER / f"{name}.yaml").read_text())
    ruleset, faults = compile_rules(rules_file.parse_rules(rendered, name).config, BUILTIN)
    assert faults == ()
    wanted = compiled(name)
    for made, other in zip(
        (*ruleset.custom, *ruleset.external), (*wanted.custom, *wanted.external), strict=True
    ):
        assert (made.config.series_query, made.config.metrics_query) == (
            other.config.series_query,
            other.config.metrics_query,
        )


QUESTIONS = {
    f"{name} {asked.request}": (name, asked) for name, expected in FILES.items() for asked in expected.asked
}


@pytest.mark.parametrize(("name", "asked"), QUESTIONS.values(), ids=QUESTIONS)
async def test_query(name: str, asked: Asked) -> None:
    ruleset = compiled(name)
    rules = ruleset.custom if asked.api == "custom" else ruleset.external
    found = series({"__name__": asked.name, **dict.fromkeys(asked.labels.split(), "x")})
    selector = rules[asked.rule].config.series_query
    async with world(ruleset, answer=lambda _: vector(), lists={selector: found}, names=asked.listed) as here:
        if asked.api == "custom":
            served = {f"{each.resource}/{each.metric}" for each in here.provider.custom_metrics()}
        else:
            served = set(here.provider.external_metrics())
        assert served == set(asked.served.split())
        wanted = question(asked.api, asked.request)
        with contextlib.suppress(NotFoundError):  # nothing has a value
            if isinstance(wanted, CustomQuestion):
                await here.provider.custom(wanted)
            else:
                assert isinstance(wanted, ExternalQuestion)
                await here.provider.external(wanted)
        assert here.querier.asked == ([] if asked.promql is None else [asked.promql])
