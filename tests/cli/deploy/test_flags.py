"""The command lines of `fastpath certs` and `fastpath preflight`."""

import pytest

from adapter.cli.deploy import flags
from adapter.errors import InputError
from adapter.model.apiservices import ServiceReference


def test_defaults_are_the_manifests() -> None:
    assert flags.parse_certs([]) == flags.CertsOptions(
        service=ServiceReference("fastpath", "fastpath"),
        groups=("custom.metrics.k8s.io",),
        days=365,
        previous="",
        output="",
    )
    assert flags.parse_preflight([]) == flags.PreflightOptions(
        service=ServiceReference("fastpath", "fastpath"), groups=(), kubeconfig=""
    )


def test_all_of_them() -> None:
    found = flags.parse_certs(
        [
            "--namespace=metrics",
            "--service",
            "adapter",
            "--days=30",
            "--previous=old.crt",
            "-o",
            "certs",
            "--groups=metrics.k8s.io,external.metrics.k8s.io",
            "--groups=metrics.k8s.io",
        ]
    )
    assert found.service == ServiceReference("metrics", "adapter")
    assert found.groups == ("metrics.k8s.io", "external.metrics.k8s.io")
    assert (found.days, found.previous, found.output) == (30, "old.crt", "certs")
    assert flags.parse_preflight(["--kubeconfig=c"]).kubeconfig == "c"


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        (
            "--namespace=Metrics",
            '--namespace: "Metrics": expected a name of lower-case letters, digits and dashes, at most 63',
        ),
        (
            "--namespace=a.b",
            '--namespace: "a.b": expected a name of lower-case letters, digits and dashes, at most 63',
        ),
        (
            "--service=-a",
            '--service: "-a": expected a name of lower-case letters, digits and dashes, at most 63',
        ),
        ("--days=0", '--days: "0": expected 1 to 3650'),
        ("--days=3651", '--days: "3651": expected 1 to 3650'),
        ("--days=a", '--days: "a": expected a whole number'),
        ("--output=", '--output: "": expected a path'),
        ("--previous=", '--previous: "": expected a path'),
        (
            "--groups=apps",
            '--groups: "apps": expected one or more of custom.metrics.k8s.io, external.metrics.k8s.io, metrics.k8s.io',
        ),
        (
            "--groups=",
            '--groups: "": expected one or more of custom.metrics.k8s.io, external.metrics.k8s.io, metrics.k8s.io',
        ),
        ("--group=apps", "--group: unknown flag, did you mean --groups?"),
        ("apps", '"apps": expected flags only'),
    ],
)
def test_what_is_refused(argument: str, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        flags.parse_certs([argument])
    assert [str(fault) for fault in raised.value.faults] == [sentence]


def test_all_faults_at_once() -> None:
    with pytest.raises(InputError) as raised:
        flags.parse_preflight(["--days=1", "--namespace=A", "--kubeconfig="])
    assert len(raised.value.faults) == 3


def test_help_names_every_flag() -> None:
    assert flags.asks_for_help(["--namespace=a", "-h"], flags.CERTS)
    assert not flags.asks_for_help(["--namespace", "-h"], flags.CERTS)
    text = flags.render_help("certs", ["It makes."], flags.CERTS)
    assert text.startswith("Usage: fastpath certs [flags]\n\nIt makes.\n\n")
    for name in flags.CERTS:
        assert f"--{name}" in text
