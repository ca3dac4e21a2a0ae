import msgspec

from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.objects.pods import Container, Pod, PodFacts, ResourceRequirements, facts_of
from adapter.model.quantity import read
from adapter.model.timestamps import NEVER, SECOND, read_instant

_POD = b"""{
  "metadata": {"name": "web-0", "namespace": "default", "labels": {"app": "web"},
    "deletionTimestamp": "2026-11-20T12:00:00Z"},
  "spec": {
    "containers": [{"name": "app", "image": "x",
      "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}}}],
    "initContainers": [{"name": "mesh", "restartPolicy": "Always"}],
    "resources": {"requests": {"cpu": 1}}, "overhead": {"cpu": "50m"}
  },
  "status": {
    "phase": "Running", "startTime": "1970-01-01T00:00:01Z",
    "conditions": [
      {"type": "PodScheduled", "status": "True"},
      {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:02Z"},
      {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:03Z"}
    ]
  }
}"""


def _facts(text: bytes) -> PodFacts:
    return facts_of(msgspec.json.decode(text, type=Pod, dec_hook=decode_scalar))


def test_fields_that_decisions_read_are_flattened() -> None:
    assert _facts(_POD) == PodFacts(
        name="web-0",
        phase="Running",
        labels={"app": "web"},
        deleting=True,
        started=SECOND,
        ready="False",
        ready_since=2 * SECOND,
        containers=(Container("app", ResourceRequirements({"cpu": read("250m")}, {"cpu": read("1")})),),
        init_containers=(Container("mesh", None, "Always"),),
        pod_requests={"cpu": read("1")},
        overhead={"cpu": read("50m")},
    )
    assert _facts(_POD).port_owners == {}, "known of watched pods alone"


def test_a_pod_of_nothing() -> None:
    facts = _facts(
        b'{"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}]}}'
    )

    assert facts == PodFacts("", "", ready="True", ready_since=NEVER)
    assert _facts(b"{}").ready is None
    assert read_instant("0001-01-01T00:00:00Z") == facts.ready_since


def test_running_and_ready() -> None:
    assert PodFacts("a", "Running", ready="True", deleting=True).running_and_ready
    assert not PodFacts("a", "Running", ready="Unknown").running_and_ready
    assert not PodFacts("a", "Pending", ready="True").running_and_ready
