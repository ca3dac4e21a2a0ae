"""Who a process is: from the environment, else from the system."""

import socket
from pathlib import Path

from adapter.clients import ownpod
from adapter.clients.leaderelection import pod_of


def test_the_pod_name_of_the_environment_wins() -> None:
    assert ownpod.find_pod_name({"POD_NAME": "fastpath-7d9-abc"}) == "fastpath-7d9-abc"
    assert ownpod.find_pod_name({}) == socket.gethostname()


def test_the_namespace_is_the_environments_else_the_service_accounts(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    assert ownpod.find_namespace({}, file) == ""
    file.write_text("ops\n", encoding="utf-8")
    assert ownpod.find_namespace({}, file) == "ops"
    assert ownpod.find_namespace({"POD_NAMESPACE": "shop"}, file) == "shop"


def test_every_process_has_an_identity_of_its_own_that_names_the_pod() -> None:
    first, second = ownpod.new_identity("web-0"), ownpod.new_identity("web-0")
    assert first != second
    assert pod_of(first) == pod_of(second) == "web-0"
