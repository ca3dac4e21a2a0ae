"""The names of APIServices, and whether one leads to this process."""

import pytest

from adapter.model.objects import apiservices
from adapter.model.objects.apiservices import Registration, ServiceReference, Trust

OURS = ServiceReference("fastpath", "fastpath")


def test_names_are_version_and_group() -> None:
    assert apiservices.names_of(["custom.metrics.k8s.io", "metrics.k8s.io"]) == (
        "v1beta1.custom.metrics.k8s.io",
        "v1beta2.custom.metrics.k8s.io",
        "v1beta1.metrics.k8s.io",
        "v1.metrics.k8s.io",
    )


@pytest.mark.parametrize(
    ("registration", "names", "expected"),
    [
        pytest.param(
            Registration(OURS, Trust.BUNDLE),
            ["fastpath.fastpath.svc"],
            True,
            id="by the name in the certificate",
        ),
        pytest.param(Registration(OURS, Trust.BUNDLE), ["*.fastpath.svc"], True, id="by a wildcard"),
        pytest.param(
            Registration(OURS, Trust.BUNDLE),
            ["fastpath", "localhost"],
            False,
            id="the API server refuses the name",
        ),
        pytest.param(Registration(OURS, Trust.NONE), ["localhost"], True, id="no name is checked"),
        pytest.param(
            Registration(ServiceReference("fastpath", "keda"), Trust.BUNDLE), ["fastpath.fastpath.svc"], False
        ),
        pytest.param(
            Registration(ServiceReference("keda", "fastpath"), Trust.NONE), ["fastpath.keda.svc"], False
        ),
        pytest.param(Registration(None, Trust.SYSTEM), ["fastpath.fastpath.svc"], False, id="a CRD"),
    ],
)
def test_which_one_leads_here(registration: Registration, names: list[str], *, expected: bool) -> None:
    assert apiservices.leads_here(registration, "fastpath", names) is expected
