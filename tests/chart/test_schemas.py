"""What the chart renders is valid for Kubernetes' own schemas, without fields that they do not have.

A real API server says the same where one is given (`tests.e2e.test_chart`).
"""

import kubernetes_validate
import pytest

from tests.chart import charts
from tests.chart.chart_cases import RENDERINGS
from tests.support.rendered import JSON

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

OLDEST, NEWEST = "1.27", "1.37"

OTHERS = {"Certificate", "Issuer", "PrometheusRule", "ServiceMonitor"}
"""Kinds that are other people's, which have no schema here."""

NEWER = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
"""Kinds that the oldest version does not have; there the chart refuses to render them."""


def faults(objects: list[JSON], version: str) -> list[str]:
    found = []
    for each in objects:
        name = f"{each['kind']} {each['metadata']['name']}"
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{name}: {error.message}")
    return found


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", RENDERINGS)
def test_objects_are_valid(name: str, version: str) -> None:
    rendered = charts.render(RENDERINGS[name])
    absent = OTHERS | NEWER if version == OLDEST else OTHERS
    objects = [each for each in rendered.documents if each["kind"] not in absent]
    assert objects
    assert faults(objects, version) == []


@pytest.mark.parametrize(
    ("place", "value"),
    [("replicas", "two"), ("replica", 2), ("strategy", {"rollingUpdate": {"maxSurge": []}})],
)
def test_a_fault_is_found(place: str, value: object) -> None:
    deployment = charts.render().one("Deployment")
    deployment["spec"][place] = value
    (fault,) = faults([deployment], NEWEST)
    assert fault.startswith("Deployment fastpath: ")
