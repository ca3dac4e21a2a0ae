"""The values of the chart: each is described, checked, and changes something."""

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.config.options import IGNORED, SCALE, SERVE
from fastpath_tools.live import chart_values as helm_values
from scripts.generate import chart_values
from tests.chart import charts
from tests.chart.charts import NOTES
from tests.support.answers import answers

Values = dict[str, Any]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

RULE = {"seriesQuery": 'queue{name!=""}', "metricsQuery": "sum(<<.Series>>)"}
SCALER = {"scaler": {"enabled": True}}
MONITOR = {"serviceMonitor": {"enabled": True}}
IDLE: Values = {"scaler": {"enabled": True, "idleScaleDown": {"enabled": True}}}
POLICY = {"networkPolicy": {"enabled": True}}
EVERYTHING: Values = SCALER | MONITOR | POLICY


def test_every_value_is_described() -> None:
    for path, schema in chart_values.walk(chart_values.read_schema()):
        text = schema.get("description", "")
        assert len(text) > 5, path
        assert text[0].isupper() or text[0] == '"' or text.startswith("true:"), path
        assert text.endswith("."), path


def test_fastpath_check_knows_the_values() -> None:
    keys = {path[0] for path, _ in chart_values.leaves()} - {"rules"}
    assert keys <= helm_values.CHART_KEYS
    assert helm_values.is_chart_values((charts.CHART / "values.yaml").read_text())


def test_sections_are_closed() -> None:
    schema = chart_values.read_schema()
    for path, below in (((), schema), *chart_values.walk(schema)):
        if "properties" in below:
            assert below["additionalProperties"] is False, path


@pytest.mark.parametrize("place", [None, "prometheus"])
def test_rules_in_another_place_are_refused_with_theirs(place: str | None) -> None:
    keys = [path[1] for path, _ in chart_values.walk(chart_values.read_schema()) if path[:-1] == ("rules",)]
    assert "external" in keys
    for key in keys:
        with pytest.raises(charts.require().HelmError) as raised:
            charts.render_files({place: {key: []}} if place else {key: []})
        assert f"additional properties '{key}' not allowed" in str(raised.value)
        assert f"properties 'rules.{key}' required, if '{key}' exists" in str(raised.value)


def test_the_defaults_are_described() -> None:
    described = dict(chart_values.walk(chart_values.read_schema()))

    def look(values: Values, path: tuple[str, ...]) -> None:
        for key, value in values.items():
            assert (*path, key) in described, (*path, key)
            if "properties" in described[*path, key]:
                look(value, (*path, key))

    look(yaml.safe_load((charts.CHART / "values.yaml").read_text()), ())


def test_the_readme_has_the_table_of_the_values() -> None:
    text = chart_values.README.read_text()
    assert text == chart_values.updated(text), "run: python -m scripts.generate.chart_values"


@pytest.mark.parametrize("rbac", [True, False])
@pytest.mark.parametrize("scaler", [True, False])
def test_the_right_to_patch_pods_comes_with_its_policy(*, scaler: bool, rbac: bool) -> None:
    idle = {"scaler": {"enabled": scaler, "idleScaleDown": {"enabled": True}}, "rbac": {"create": rbac}}
    found = [
        each["kind"]
        for each in charts.render(idle).documents
        if each["metadata"]["name"] == "fastpath-idle-scale-down"
    ]
    policies = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    roles = ["ClusterRole", "ClusterRoleBinding"]
    assert found == (policies + roles * rbac) * scaler, "roles of the user's own are limited too"


@pytest.mark.parametrize(
    ("values", "account"),
    [
        (IDLE, "'system:serviceaccount:metrics:' + 'release-fastpath-scaler'"),
        (
            {"scaler": IDLE["scaler"] | {"inProcess": True}},
            "'system:serviceaccount:metrics:' + 'release-fastpath'",
        ),
        (
            {"scaler": IDLE["scaler"] | {"serviceAccount": {"name": "own"}}},
            "'system:serviceaccount:metrics:' + 'own'",
        ),
        (IDLE | {"namespaceOverride": "other"}, "'system:serviceaccount:other:' + 'release-fastpath-scaler'"),
    ],
)
def test_the_policy_is_for_the_account_that_the_role_is_bound_to(values: Values, account: str) -> None:
    objects = charts.render(values, name="release", namespace="metrics")
    name = "release-fastpath-idle-scale-down"
    (condition,) = objects.one("ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert condition["expression"] == f"request.userInfo.username == {account}"
    assert objects.one("ValidatingAdmissionPolicyBinding")["spec"]["policyName"] == name
    (subject,) = objects.one("ClusterRoleBinding", name)["subjects"]
    assert f"'system:serviceaccount:{subject['namespace']}:' + '{subject['name']}'" == account


def test_an_older_kubernetes_has_no_policy_so_the_component_is_refused(tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(charts.CHART, chart, ignore=shutil.ignore_patterns("kustomization.yaml"))
    template = chart / "templates" / "idle-scale-down.yaml"
    written = template.read_text()
    assert written.count(">=1.30.0-0") == 1
    template.write_text(written.replace(">=1.30.0-0", ">=9.30.0-0"))  # Helm's library has one version
    with pytest.raises(charts.require().HelmError) as raised:
        charts.render_files(IDLE, chart=chart)
    assert "scaler.idleScaleDown.enabled needs Kubernetes 1.30 or newer, and this is v" in str(raised.value)
    assert charts.render_files(SCALER, chart=chart)


def nulls(schema: chart_values.Schema) -> Values | None:
    if "properties" not in schema:
        return None
    return {key: nulls(below) for key, below in schema["properties"].items()}


@pytest.mark.parametrize("key", sorted(chart_values.read_schema()["properties"].keys() - {"compatibility"}))
def test_null_takes_a_value_away(key: str) -> None:
    each_below = nulls(chart_values.read_schema()["properties"][key])
    for values in ({key: None}, EVERYTHING | {key: each_below}):
        assert "kind: Deployment" in charts.render_files(values)["templates/deployment.yaml"]


def test_names_are_not_too_long() -> None:
    """A Service, and a label, has at most 63 characters."""
    values = SCALER | MONITOR | {"fullnameOverride": "x" * 80, "nameOverride": "y" * 80}
    for mode in ("", "prometheus-adapter"):
        for each in charts.render({**values, "compatibility": mode}, name="z" * 53).documents:
            if each["kind"] in {"Service", "ServiceMonitor", "Deployment"}:
                assert len(each["metadata"]["name"]) <= 63
            labels = dict(each["metadata"]["labels"])
            if each["kind"] == "Deployment":
                labels |= each["spec"]["template"]["metadata"]["labels"]
            for value in labels.values():
                assert len(value) <= 63


PLACEHOLDER = "placeholder"
TEXTS: Values = yaml.safe_load("""
fullnameOverride: placeholder
nameOverride: placeholder
namespaceOverride: placeholder
customAnnotations: {a: placeholder}
customLabels: {a: placeholder}
image: {tag: placeholder, pullSecrets: [placeholder]}
prometheus: {path: placeholder}
logLevel: placeholder
extraArguments: [placeholder]
priorityClassName: system-placeholder
env: [{name: A, value: placeholder}]
serviceAccount: {name: placeholder, annotations: {a: placeholder}}
service: {clusterIP: placeholder}
rules: {existing: placeholder, default: true, external: [{seriesQuery: a}]}
scaler:
  enabled: true
  extraArguments: [placeholder]
  serviceAccount: {name: placeholder}
  idleScaleDown: {enabled: true}
serviceMonitor: {enabled: true, prometheus: {namespace: placeholder, serviceAccount: placeholder}}
dashboards: {enabled: true, namespace: placeholder}
alerts: {enabled: true, namespace: placeholder}
networkPolicy: {enabled: true, prometheus: {namespace: placeholder, podLabels: {a: placeholder}}}
""")


def free(values: Values, schema: chart_values.Schema) -> Values:
    """Return the values without the texts that the schema restricts, which takes no other text."""
    kept: Values = {}
    for key, value in values.items():
        below = schema["properties"][key]
        if isinstance(value, dict) and "properties" in below:
            kept[key] = free(value, below)
        elif below.keys().isdisjoint({"enum", "format", "pattern"}):
            kept[key] = value
    return kept


@pytest.mark.parametrize("text", ["2024", "1e3", "null", "a\"b'c: {{ x }}\n- d: [#"])
@pytest.mark.parametrize("mode", ["", "prometheus-adapter"])
@pytest.mark.parametrize("certificate", ["certManager", "existing"])
def test_text_stays_text(mode: str, text: str, certificate: str) -> None:
    """A name of digits becomes no number, and no text ends the field in which it stands."""

    expected = with_text(PLACEHOLDER, mode, certificate)
    if text.isdigit():
        expected = expected.replace('"release"', json.dumps(text))
    assert with_text(text, mode, certificate) == expected.replace(PLACEHOLDER, json.dumps(text)[1:-1])


@functools.cache
def with_text(text: str, mode: str, certificate: str) -> str:
    """Return what the chart renders of values with a text in all places."""
    texts = free(TEXTS, chart_values.read_schema())
    values = json.dumps({**texts, "compatibility": mode}).replace(PLACEHOLDER, json.dumps(text)[1:-1])
    change = {"certManager": {"enabled": certificate == "certManager"}, "tls": {"existingSecret": text}}
    name = text if text.isdigit() else "release"
    return json.dumps(charts.render(json.loads(values) | change, name=name).documents, sort_keys=True)


def test_a_budget_may_have_an_empty_value() -> None:
    """As in prometheus-adapter's chart, where "" and 0 are absent values."""

    def budget(values: Values) -> Values:
        spec = charts.render({"podDisruptionBudget": values}).one("PodDisruptionBudget")["spec"]
        return {key: spec[key] for key in ("minAvailable", "maxUnavailable") if key in spec}

    assert budget({"minAvailable": "", "maxUnavailable": 1}) == {"maxUnavailable": 1}
    assert budget({"minAvailable": 0, "maxUnavailable": "50%"}) == {"maxUnavailable": "50%"}
    assert budget({"minAvailable": 2, "maxUnavailable": 0}) == {"minAvailable": 2}
    assert budget({"minAvailable": "", "maxUnavailable": ""}) == {"minAvailable": 1}
    assert budget({"maxUnavailable": 0}) == {"maxUnavailable": 0}


@pytest.mark.parametrize(("replicas", "pods"), [(2, "10"), (8, "20")])
def test_a_quota_has_room_for_all_scalers_and_an_update(replicas: int, pods: str) -> None:
    objects = charts.render({"scaler": {"enabled": True, "replicas": replicas}})
    assert objects.one("ResourceQuota")["spec"]["hard"] == {"pods": pods}
    assert charts.render().one("ResourceQuota")["spec"]["hard"] == {"pods": "10"}


@pytest.mark.parametrize(("replicas", "budgets"), [(1, []), (4, [1])])
def test_several_scalers_are_evicted_one_at_a_time(replicas: int, budgets: list[int]) -> None:
    objects = charts.render({"scaler": {"enabled": True, "replicas": replicas}})
    found = [each for each in objects.all("PodDisruptionBudget") if "scaler" in each["metadata"]["name"]]
    assert [each["spec"]["maxUnavailable"] for each in found] == budgets
    (scaler,) = (each for each in objects.all("Deployment") if "scaler" in each["metadata"]["name"])
    spread = scaler["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert {each["whenUnsatisfiable"] for each in spread} == {"ScheduleAnyway"}
    assert all(
        each["labelSelector"]["matchLabels"] == scaler["spec"]["selector"]["matchLabels"] for each in spread
    )


def test_no_old_replica_sets_are_kept() -> None:
    for values in (SCALER | {"revisionHistoryLimit": 0}, SCALER | {"revisionHistoryLimit": "0"}):
        for each in charts.render(values).all("Deployment"):
            assert each["spec"]["revisionHistoryLimit"] == 0
    assert "revisionHistoryLimit" not in charts.render({"revisionHistoryLimit": ""}).one("Deployment")["spec"]


@pytest.mark.parametrize(
    ("url", "namespace", "warned"),
    answers("chart/values", "a_policy_that_cuts_off_prometheus_is_named_in_the_notes"),
)
def test_a_policy_that_cuts_off_prometheus_is_named_in_the_notes(
    url: str,
    namespace: str,
    warned: bool,  # noqa: FBT001
) -> None:
    sentence = "The NetworkPolicies allow no connection to Prometheus at http"
    for enabled in (True, False):
        policy = {"enabled": enabled, "prometheus": {"namespace": namespace}}
        files = charts.render_files({"prometheus": {"url": url}, "networkPolicy": policy})
        assert (sentence in files[f"templates/{NOTES}"]) is (warned and enabled)


def test_a_parent_chart_may_switch_the_chart_on(tmp_path: Path) -> None:
    """Helm passes the key of a dependency's condition to the dependency."""
    parent = tmp_path / "parent"
    shutil.copytree(
        charts.CHART, parent / "charts" / "fastpath", ignore=shutil.ignore_patterns("kustomization.yaml")
    )
    dependency = {"name": "fastpath", "version": "*", "condition": "fastpath.enabled"}
    (parent / "Chart.yaml").write_text(
        yaml.safe_dump(
            {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
        )
    )
    (parent / "values.yaml").write_text("fastpath: {enabled: true}\n")
    assert charts.render(chart=parent).all("Deployment")


def test_two_releases_in_a_namespace_select_their_own_pods() -> None:
    for mode in ("", "prometheus-adapter"):
        one, other = (
            charts.render({**EVERYTHING, "compatibility": mode}, name=name) for name in ("one", "two")
        )
        pods = [each["spec"]["template"]["metadata"]["labels"] for each in other.all("Deployment")]
        selectors = [each["spec"]["selector"] for each in one.all("Service")]
        selectors += [each["spec"]["selector"]["matchLabels"] for each in one.all("Deployment")]
        selectors += [each["spec"]["selector"]["matchLabels"] for each in one.all("PodDisruptionBudget")]
        assert len(selectors) == 6
        assert not [each for each in selectors for pod in pods if each.items() <= pod.items()]
        services = [each["metadata"]["labels"] for each in other.all("Service")]
        monitors = [each["spec"]["selector"]["matchLabels"] for each in one.all("ServiceMonitor")]
        assert len(monitors) == 2
        assert not [each for each in monitors for service in services if each.items() <= service.items()]


def test_numbers_may_be_text() -> None:
    """As in prometheus-adapter's chart, which writes them without quotes."""
    numbers = {"replicas": 3, "listenPort": 10250, "revisionHistoryLimit": 2}
    service = {"service": {"port": 8443}, "tls": {"insecureSkipTLSVerify": True}}
    written = {"service": {"port": "8443"}, "tls": {"insecureSkipTLSVerify": True}}
    text = {key: str(number) for key, number in numbers.items()}
    assert charts.render_files(written | text) == charts.render_files(service | numbers)


def test_extra_objects_may_have_names() -> None:
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra"}}
    for values in ([extra], {"any": extra}):
        assert charts.render({"extraManifests": values}).one("ConfigMap", "extra") == extra


def test_helms_own_values_are_accepted() -> None:
    assert charts.render({"global": {"imageRegistry": "registry.example.com"}}).all("Deployment")


def test_flags_that_serve_ignores_are_named_in_the_notes() -> None:
    ignored = {flag.name for flag in IGNORED}
    taken = set(SERVE.table) - ignored
    arguments = {f"--{name}=x" for name in ignored} | {f"--{name}=x" for name in taken}
    notes = charts.render_files({"extraArguments": sorted(arguments)})[f"templates/{NOTES}"]
    named = {line.split()[2] for line in notes.splitlines() if line.startswith("- extraArguments ")}
    assert named == {f"--{name}=x" for name in ignored}


def test_the_program_understands_its_arguments() -> None:
    for in_process in (False, True):
        scaler = {"scaler": {"enabled": True, "inProcess": in_process}, "boost": {"enabled": True}}
        for deployment in charts.render(scaler | MONITOR | {"logLevel": 4}).all("Deployment"):
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            command = SCALE if container.get("command") == ["fastpath", "scale"] else SERVE
            _, notices = command.parse(container["args"])
            assert notices == ()


def test_absent_keys_mean_what_the_defaults_say(tmp_path: Path) -> None:
    """Values of a former chart have none of these keys: a feature is off, and its settings are the same."""
    chart = tmp_path / "chart"
    shutil.copytree(charts.CHART, chart, ignore=shutil.ignore_patterns("kustomization.yaml"))
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    added = ("scaler", "crd", "boost", "serviceMonitor", "dashboards", "alerts", "networkPolicy")
    everything: Values = {key: {"enabled": True} for key in added if key != "crd"}
    whole = charts.render(everything, chart=chart)
    for key in added:
        del defaults[key]
    (chart / "values.yaml").write_text(yaml.safe_dump(defaults))
    assert not charts.render(chart=chart).all("CustomResourceDefinition")
    fewer = charts.render(everything, chart=chart)
    certificates = {"Secret", "ConfigMap", "APIService"}
    assert fewer.all("CustomResourceDefinition")
    assert [each for each in fewer.documents if each["kind"] not in certificates] == [
        each for each in whole.documents if each["kind"] not in certificates
    ]


def test_the_schema_is_a_schema() -> None:
    schema = json.loads((charts.CHART / "values.schema.json").read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert charts.require().lint(charts.CHART)["errors"] == []


# What people write, right and wrong, for each value that becomes a part of a flag.
URLS = """
http://prometheus.monitoring.svc https://10.0.0.1 http://[fd00::1] http://u:p@prometheus http://prometheus:8080
http://prometheus/api http://prometheus/ prometheus prometheus:9090 http:// ftp://prometheus http://x:0
http://x:99999 http://x:9090:9090 http://x?query http://x#part http://x/%zz //x http//x HTTP://x http://é
"""
PORTS = [0, 1, 65535, 65536, -1, 1_000_000, "", "9090", "65536", "http", "0", "080", " 9090", ":9090", None]
PATHS = """
/prometheus /a/b/ /a%20b /%zz prometheus /a?b /a#b ?a :9090
"""
DURATIONS = """
1m 1m30s 1.5h 0s 0m0s 1 60 1d -1m m 0.0s 99999999h
"""
LEVELS = [0, 6, 10, -1, 1_000_000, "6", "", "high", "-1", "6.5", None]
LISTENED = [1, 443, 65535, 0, 65536, "6443", "0", "65536", "https", None]


@pytest.mark.timeout(300)
def test_the_schema_accepts_no_value_that_the_program_refuses() -> None:
    tried: list[Values] = [
        *(
            {"prometheus": {"url": url, "port": port}}
            for url in (*URLS.split(), "", "http://a b", "http://x\n")
            for port in (9090, 0)
        ),
        *({"prometheus": {"port": port}} for port in PORTS),
        *(
            {"prometheus": {"path": path, "port": port}}
            for path in (*PATHS.split(), "", "/a b", None)
            for port in (9090, "")
        ),
        *({"metricsRelistInterval": duration} for duration in (*DURATIONS.split(), "", "1m 30s", None)),
        *({"logLevel": level} for level in LEVELS),
        *({"listenPort": port} for port in LISTENED),
    ]
    helm = charts.require()
    accepted = []
    with helm.Chart.load(charts.CHART) as loaded:
        for values in tried:
            try:
                loaded.validate_schema(values)
            except helm.HelmError:
                continue
            text = loaded.render(values, name="x", namespace="y")["fastpath/templates/deployment.yaml"]
            (deployment,) = charts.read_documents(text)
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            options, _ = SERVE.parse(container["args"])  # raises for what the program refuses
            accepted.append((values, options.prometheus_url))
    shown = [url for values, url in accepted if "prometheus" in values]
    assert "http://prometheus.monitoring.svc:9090" in shown
    assert {"http://prometheus:8080", "http://prometheus/api", "http://u:p@prometheus:9090"} <= {*shown}
    assert {"http://prometheus-operated.monitoring.svc:9090/prometheus"} <= {*shown}
    assert [url for url in shown if url.count(":9090") > 1 or "svcprometheus" in url or "/api:" in url] == []
    kept = {str(next(iter(values.values()))) for values, _ in accepted if "prometheus" not in values}
    assert {"1m", "1m30s", "1.5h", "6", "10", "443", "65535", "6443"} <= kept
