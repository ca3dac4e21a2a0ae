import pytest

from adapter.config import checks


@pytest.mark.parametrize("name", ["a", "fastpath", "a-1", "x" * 63])
def test_names_that_kubernetes_accepts(name: str) -> None:
    assert checks.label(name) == ""


@pytest.mark.parametrize("name", ["", "-a", "a-", "Fastpath", "a.b", "x" * 64])
def test_other_names(name: str) -> None:
    assert checks.label(name) == "expected a name of lower-case letters, digits and dashes, at most 63"


def test_networks_of_pods() -> None:
    assert checks.pod_cidrs(("10.244.0.0/16", "fd00:10:244::/56")) == ""
    assert checks.pod_cidrs(("10.244.0.0/16", "pods")) == (
        "expected networks such as 10.244.0.0/16 or fd00:10:244::/56"
    )
