"""Odd questions, answered as prometheus-adapter answers them: spellings, scopes, selectors, and what is
listed and asked for.

Each row was compared with prometheus-adapter v0.12 over HTTP, on one Prometheus and one API server.
"""

from dataclasses import dataclass
from typing import Literal

import pytest

from adapter.errors import StatusError
from adapter.model.metrics import CustomQuestion, ExternalQuestion
from adapter.model.resources import BUILTIN, APIResource, Catalogue
from tests.support.world import FakeResources, compile_text, question, series, vector, world

RULES = """
rules:
- seriesQuery: pods
  resources: {template: <<.Resource>>}
  name: {as: m}
  metricsQuery: sum(x{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: cluster
  resources: {template: <<.Resource>>}
  name: {as: c}
  metricsQuery: sum(y{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: pods
  resources: {template: <<.Resource>>}
  name: {as: e}
  metricsQuery: z{<<.LabelMatchers>>}
"""
LISTS = {
    "pods": series({"__name__": "x", "namespace": "web", "pod": "a", "deployment": "d", "statusx": "s"}),
    "cluster": series({"__name__": "y", "namespace": "web", "node": "n", "persistentvolume": "v"}),
}

# What is served beside the built-in kinds: one that cannot be listed, and one whose plural core has too.
REVIEW = APIResource(
    "r.io", "v1", "reviews", "review", "Review", False, frozenset({"create"}), preferred=True
)
POD_METRICS = APIResource(
    "metrics.k8s.io", "v1beta1", "pods", "podmetrics", "PodMetrics", True, REVIEW.verbs, True
)
CATALOGUE = Catalogue([*BUILTIN, REVIEW, POD_METRICS])

UNLISTED = "Internal error occurred: unable to list matching resources"


@dataclass(frozen=True)
class Row:
    """A request, and either the sentence that refuses it or the objects that have a value.

    `listed` is what the API server is asked to list, if anything, and `promql` what Prometheus is asked.
    """

    request: str
    refused: str = ""
    values: tuple[str, ...] = ()
    listed: tuple[str, str | None, str] | None = None
    promql: str | None = None
    api: Literal["custom", "external"] = "custom"


def missing(metric: str, what: str) -> str:
    return f"the server could not find the metric {metric} for {what}"


ASKED_A = 'sum(x{namespace="web",pod="a"}) by (pod)'
ASKED_BOTH = 'sum(x{namespace="web",pod=~"a|b"}) by (pod)'

ROWS = {
    # Spellings of a resource.
    "plural": Row("/namespaces/web/pods/a/m", values=("a",), promql=ASKED_A),
    "singular": Row("/namespaces/web/pod/a/m", values=("a",), promql=ASKED_A),
    "kind": Row("/namespaces/web/Pod/a/m", values=("a",), promql=ASKED_A),
    "capitals": Row("/namespaces/web/PODS/a/m", values=("a",), promql=ASKED_A),
    "a dot without a group": Row("/namespaces/web/pods./a/m", values=("a",), promql=ASKED_A),
    "a dot without a group, refused": Row("/namespaces/web/pods./a/n", missing("n", "pods")),
    "a group without a resource": Row("/namespaces/web/.apps/a/m", missing("m", ".apps")),
    "a version is no group": Row("/namespaces/web/pods.v1/a/m", missing("m", "pods.v1")),
    "a short name": Row("/namespaces/web/po/a/m", missing("m", "po")),
    "a short name of all": Row("/namespaces/web/po/*/m", UNLISTED),
    "a kind with its group": Row(
        "/namespaces/web/Deployment.apps/d/m",
        values=("d",),
        promql='sum(x{namespace="web",deployment="d"}) by (deployment)',
    ),
    "the start of a group": Row(
        "/namespaces/web/deployments.app/d/m",
        values=("d",),
        promql='sum(x{namespace="web",deployment="d"}) by (deployment)',
    ),
    "a group in capitals": Row("/namespaces/web/deployments.APPS/d/m", missing("m", "deployments.APPS")),
    "the same plural in another group": Row(
        "/namespaces/web/pods.metrics.k8s.io/a/m", missing("m", "pods.metrics.k8s.io")
    ),
    # Scopes.
    "a namespaced kind at the root": Row("/pods/a/m", missing("m", "pods")),
    "all of a namespaced kind at the root": Row("/pods/*/m", missing("m", "pods")),
    "a cluster-scoped kind in a namespace": Row("/namespaces/web/nodes/n/c", missing("c", "nodes")),
    "all of a cluster-scoped kind in a namespace": Row("/namespaces/web/nodes/*/c", UNLISTED),
    "the same, of an unknown metric": Row("/namespaces/web/persistentvolumes/*/n", UNLISTED),
    "a kind that cannot be listed": Row("/reviews.r.io/*/n", UNLISTED),
    "a cluster-scoped kind": Row("/node/n/c", values=("n",), promql='sum(y{node="n"}) by (node)'),
    "a namespace as an object": Row("/namespaces/web/namespaces/web/m", missing("m", "namespaces")),
    "part of a namespace": Row("/namespaces/web/status", missing("status", "namespaces")),
    "part of all namespaces": Row("/namespaces/*/status", UNLISTED),
    "part of a namespace, deeper": Row("/namespaces/web/finalize/a/m", missing("finalize", "namespaces")),
    "a metric of a namespace": Row(
        "/namespaces/web/metrics/m", values=("web",), promql='sum(x{namespace="web"}) by (namespace)'
    ),
    "a metric of a namespace, deeper": Row(
        "/namespaces/web/metrics/m/x", values=("web",), promql='sum(x{namespace="web"}) by (namespace)'
    ),
    # The star.
    "all": Row("/namespaces/web/pods/*/m", values=("a", "b"), listed=("pods", "web", ""), promql=ASKED_BOTH),
    "all, a slash at the end": Row(
        "/namespaces/web/pods/*/m/", values=("a", "b"), listed=("pods", "web", ""), promql=ASKED_BOTH
    ),
    "all that match": Row(
        "/namespaces/web/pods/%2A/m?labelSelector=k+in+(z,y),!j",
        values=("a", "b"),
        listed=("pods", "web", "!j,k in (y,z)"),
        promql=ASKED_BOTH,
    ),
    "a star is the name of a namespace": Row(
        "/namespaces/*/pods/a/m", values=("a",), promql='sum(x{namespace="*",pod="a"}) by (pod)'
    ),
    "the field selector repeats the star": Row(
        "/namespaces/web/pods/*/m?fieldSelector=metadata.name%3D*",
        values=("a", "b"),
        listed=("pods", "web", ""),
        promql=ASKED_BOTH,
    ),
    # External metrics.
    "a star is the name of a namespace, external": Row(
        "/namespaces/*/e", values=("a", "b"), promql='z{namespace="*"}', api="external"
    ),
    "a slash at the end, external": Row(
        "/namespaces/web/e/", values=("a", "b"), promql='z{namespace="web"}', api="external"
    ),
    "capitals, external": Row("/namespaces/web/E", missing("E", ""), api="external"),
    "part of a namespace, external": Row(
        "/namespaces/default/status", missing("namespaces", "namespaces"), api="external"
    ),
    "the namespace twice, external": Row(
        "/namespaces/web/e?labelSelector=namespace%3Dother",
        values=("a", "b"),
        promql='z{namespace="other",namespace="web"}',
        api="external",
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_answer(row: Row) -> None:
    names = {"namespace": "web", "deployment": "d", "node": "n"}
    answer = vector(*(({**names, "pod": name}, 1.0) for name in ("a", "b")))
    found: list[str] = []
    said = ""
    async with world(
        RULES, answer=lambda _: answer, lists=LISTS, names=("a", "b"), resources=FakeResources(CATALOGUE)
    ) as made:
        asked = question(row.api, row.request)
        try:
            if isinstance(asked, CustomQuestion):
                found = [item.described.name for item in (await made.provider.custom(asked)).items]
            else:
                assert isinstance(asked, ExternalQuestion)
                items = (await made.provider.external(asked)).items
                found = [item.labels["pod"] for item in items if item.labels is not None]
        except StatusError as error:
            said = error.message
    assert (said, tuple(found)) == (row.refused, row.values)
    assert made.names.asked == ([row.listed] if row.listed else [])
    assert made.querier.asked == ([row.promql] if row.promql else [])


async def test_a_label_template_takes_the_singular_name_of_the_first_group() -> None:
    """`pods` of metrics.k8s.io is singularized as core's `pods` is, although discovery calls it otherwise."""
    rules = """
    rules:
    - seriesQuery: pods
      resources: {template: <<.Group>>_<<.Resource>>, overrides: {ns: {resource: namespace}}}
      metricsQuery: x{<<.LabelMatchers>>}
    """
    lists = {"pods": series({"__name__": "x", "ns": "web", "metrics.k8s.io_podmetrics": "a"})}
    async with world(compile_text(rules, CATALOGUE), lists=lists, resources=FakeResources(CATALOGUE)) as made:
        asked = question("custom", "/namespaces/web/pods.metrics.k8s.io/a/x")
        assert isinstance(asked, CustomQuestion)
        with pytest.raises(StatusError):
            await made.provider.custom(asked)
    assert made.querier.asked == ['x{ns="web",metrics_k8s_io_pod="a"}']
