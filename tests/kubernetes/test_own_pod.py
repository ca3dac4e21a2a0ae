"""Who a process is: from the environment, else from the system."""

import socket
from pathlib import Path

from adapter.kubernetes import own_pod
from adapter.kubernetes.leader.election import pod_of


def test_the_pod_name_of_the_environment_wins() -> None:
    assert own_pod.find_pod_name({"POD_NAME": "fastpath-7d9-abc"}) == "fastpath-7d9-abc"
    assert own_pod.find_pod_name({}) == socket.gethostname()


def test_the_namespace_is_the_environments_else_the_service_accounts(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    assert own_pod.find_namespace({}, file) == ""
    file.write_text("ops\n", encoding="utf-8")
    assert own_pod.find_namespace({}, file) == "ops"
    assert own_pod.find_namespace({"POD_NAMESPACE": "shop"}, file) == "shop"


def test_every_process_has_an_identity_of_its_own_that_names_the_pod() -> None:
    first, second = own_pod.new_identity("web-0"), own_pod.new_identity("web-0")
    assert first != second
    assert pod_of(first) == pod_of(second) == "web-0"
