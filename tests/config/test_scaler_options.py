"""The flags of the election and of the writes: Kubernetes' names and defaults, and what they may not be."""

import pytest

from adapter import errors
from adapter.config.options import SERVE, Options


def parse(*argv: str) -> Options:
    return SERVE.parse(["--config=rules.yaml", *argv])[0]


def refused(*argv: str) -> list[str]:
    with pytest.raises(errors.InputError) as caught:
        SERVE.parse(["--config=rules.yaml", *argv])
    return [str(fault) for fault in caught.value.faults]


def test_names_and_defaults_are_those_of_the_kubernetes_controllers() -> None:
    written = {name: flag.default for name, flag in SERVE.table.items() if name.startswith("leader-elect")}
    assert written == {
        "leader-elect": "true",
        "leader-elect-lease-duration": "15s",
        "leader-elect-renew-deadline": "10s",
        "leader-elect-retry-period": "2s",
        "leader-elect-resource-lock": "leases",
        "leader-elect-resource-name": "fastpath-scaler",
        "leader-elect-resource-namespace": "",
    }


def test_given_options_are_used() -> None:
    options = parse(
        "--leader-elect=false",
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=40s",
        "--leader-elect-retry-period=500ms",
        "--leader-elect-resource-name=mine",
        "--leader-elect-resource-namespace=ops",
        "--shard=2/3",
        "--kube-api-write-qps=12.5",
    )
    assert not options.leader_elect
    assert (options.leader_elect_lease_duration, options.leader_elect_renew_deadline) == (60, 40)
    assert options.leader_elect_retry_period == 0.5
    assert (options.leader_elect_resource_name, options.leader_elect_resource_namespace) == ("mine", "ops")
    assert (options.shard, options.kube_api_write_qps) == ("2/3", 12.5)


@pytest.mark.parametrize(
    ("argument", "fault"),
    [
        (
            "--leader-elect-lease-duration=1500ms",
            '--leader-elect-lease-duration: "1.5s": expected whole seconds, at least 1s',
        ),
        (
            "--leader-elect-lease-duration=0s",
            '--leader-elect-lease-duration: "0s": expected whole seconds, at least 1s',
        ),
        (
            "--leader-elect-lease-duration=10s",
            (
                '--leader-elect-lease-duration: "10s": expected more than --leader-elect-renew-deadline, '
                "which "
                "is 10s"
            ),
        ),
        (
            "--leader-elect-renew-deadline=2.4s",
            (
                '--leader-elect-renew-deadline: "2.4s": expected more than 1.2 times '
                "--leader-elect-retry-period, which is 2s"
            ),
        ),
        ("--leader-elect-retry-period=0s", '--leader-elect-retry-period: "0s": expected a duration above 0'),
        (
            "--leader-elect-resource-lock=configmaps",
            (
                '--leader-elect-resource-lock: "configmaps": expected leases: Kubernetes has removed '
                "other kinds of locks"
            ),
        ),
        (
            "--leader-elect-resource-name=Mine",
            (
                '--leader-elect-resource-name: "Mine": expected the name of a Lease: lower case letters, '
                "digits, - and ."
            ),
        ),
        (
            "--shard=0/3",
            '--shard: "0/3": expected i/n with 1 <= i <= n <= 1000, such as 1/3 for the first of three',
        ),
        ("--kube-api-write-qps=0", '--kube-api-write-qps: "0.0": expected a number above 0'),
    ],
)
def test_impossible_options_are_refused(argument: str, fault: str) -> None:
    assert refused(argument) == [fault]
