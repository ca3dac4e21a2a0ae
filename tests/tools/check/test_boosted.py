"""`fastpath check` reads how an HPA is boosted as the scaler does; `tests/golden/check` has what it says."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling import boost, documents
from fastpath_tools.boost import boost_patch
from fastpath_tools.boost.boost_patch import Wish
from fastpath_tools.check import autoscalers
from fastpath_tools.check.autoscalers import Autoscalers

PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
HANDSHAKE = {
    "type": "External",
    "external": {
        "metric": {"name": "fastpath_replicas", "selector": {"matchLabels": {"autoscaler": "web"}}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}


def _hpa(*metrics: dict[str, Any], annotations: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 9,
            "metrics": list(metrics),
        },
    }


@given(
    annotations=st.dictionaries(
        st.sampled_from(boost.ANNOTATIONS),
        st.text(max_size=8) | st.sampled_from(("boost", "advise", "45s", "rps=2", "Floor")),
    ),
    shaken=st.booleans(),
)
def test_a_file_without_a_fault_is_what_the_scaler_boosts(
    *, annotations: dict[str, str], shaken: bool
) -> None:
    tree = _hpa(PODS, *([HANDSHAKE] if shaken else []), annotations=annotations)
    read = documents.read_document(tree, floor_metric=True)
    metrics = boost.without_handshake(read.spec.metrics) or ()
    scaler = boost.read_annotations(annotations, metrics)
    manifests = Autoscalers()
    assert autoscalers.read(json.dumps(tree), "web.json", manifests)
    faults = list(autoscalers.faults_of(manifests.given[0], ()))
    is_refused = bool(scaler.faults) or (scaler.mode == "Boost" and not shaken)
    assert bool(faults) is is_refused
    planned = boost_patch.plan(tree, Wish("boost")).notes
    assert [note for note in planned if "annotation" in note] == [
        fault for fault in scaler.faults if "fastpath.io/mode" not in fault
    ]
