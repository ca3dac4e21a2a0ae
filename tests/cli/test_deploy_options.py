"""The command lines of `fastpath certs` and `fastpath preflight`."""

import pytest

from adapter.cli import certs, preflight
from adapter.errors import InputError
from adapter.model.apiservices import ServiceReference


def test_defaults_are_the_manifests() -> None:
    assert certs.COMMAND.parse([])[0] == certs.CertsOptions(
        namespace="fastpath",
        service="fastpath",
        groups=("custom.metrics.k8s.io",),
        days=365,
        previous="",
        out_dir="",
    )
    assert preflight.COMMAND.parse([])[0] == preflight.PreflightOptions(
        namespace="fastpath", service="fastpath", groups=(), kubeconfig=""
    )


def test_all_of_them() -> None:
    found, _ = certs.COMMAND.parse(
        [
            "--namespace=metrics",
            "--service",
            "adapter",
            "--days=30",
            "--previous=old.crt",
            "--out-dir",
            "certs",
            "--groups=metrics.k8s.io,external.metrics.k8s.io",
            "--groups=metrics.k8s.io",
        ]
    )
    assert found.reference == ServiceReference("metrics", "adapter")
    assert found.groups == ("metrics.k8s.io", "external.metrics.k8s.io")
    assert (found.days, found.previous, found.out_dir) == (30, "old.crt", "certs")
    assert preflight.COMMAND.parse(["--kubeconfig=c"])[0].kubeconfig == "c"


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
        ("--out-dir=", '--out-dir: "": expected a path'),
        ("--previous=", '--previous: "": expected a path'),
        (
            "--groups=apps",
            (
                '--groups: "apps": expected one or more of custom.metrics.k8s.io, external.metrics.k8s.io, '
                "metrics.k8s.io"
            ),
        ),
        (
            "--groups=",
            (
                '--groups: "": expected one or more of custom.metrics.k8s.io, external.metrics.k8s.io, '
                "metrics.k8s.io"
            ),
        ),
        ("--group=apps", "--group: unknown flag, did you mean --groups?"),
        ("apps", '"apps": expected flags only'),
    ],
)
def test_what_is_refused(argument: str, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        certs.COMMAND.parse([argument])
    assert [str(fault) for fault in raised.value.faults] == [sentence]


def test_all_faults_at_once() -> None:
    with pytest.raises(InputError) as raised:
        preflight.COMMAND.parse(["--days=1", "--namespace=A", "--kubeconfig="])
    assert len(raised.value.faults) == 3


def test_help_names_every_flag() -> None:
    assert certs.COMMAND.help_for(["--namespace", "-h"]) is None
    text = certs.COMMAND.help_for(["--namespace=a", "-h"])
    assert text is not None
    assert text.startswith("Usage: fastpath certs [flags]\n\nMakes a serving certificate")
    for name in ("namespace", "service", "groups", "days", "previous", "out-dir"):
        assert f"--{name}" in text
    assert "--output" not in text


def test_the_former_name_of_the_folder_is_deprecated() -> None:
    for old in ("-o", "--output"):
        found, notices = certs.COMMAND.parse([old, "certs"])
        assert found.out_dir == "certs"
        assert notices == ("Flag --output has been deprecated, use --out-dir",)
