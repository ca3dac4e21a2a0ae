"""The fixture itself, as far as the programs at hand allow."""

import json
import shutil
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.e2e import controlplane
from tests.e2e.controlplane import ControlPlane, Server, StartError
from tests.support.tls import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(60)]


@pytest.fixture
def etcd(tmp_path: Path) -> Server:
    assets = controlplane.find_assets()
    own = assets / "etcd" if assets else None
    program = str(own) if own is not None and own.is_file() else shutil.which("etcd")
    if program is None:
        pytest.skip("etcd is not installed; Debian's package etcd-server has it")
    return controlplane.make_etcd(Path(program), tmp_path)


def call(server: Server, path: str, **body: str) -> dict[str, object]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=5) as response:
        answer: dict[str, object] = json.load(response)
        return answer


def test_etcd_keeps_its_port_and_what_it_stored(etcd: Server) -> None:
    etcd.start()
    try:
        port = etcd.port
        call(etcd, "/v3/kv/put", key="a2V5", value="dmFsdWU=")
        etcd.kill()
        etcd.start()
        assert etcd.port == port
        assert "dmFsdWU=" in str(call(etcd, "/v3/kv/range", key="a2V5"))
    finally:
        etcd.stop()
    etcd.stop()  # nothing runs: nothing happens


def test_another_port_is_taken_when_the_first_is_not_free(etcd: Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        etcd.port = taken.getsockname()[1]
        etcd.start()
        try:
            assert etcd.port != taken.getsockname()[1]
        finally:
            etcd.stop()


def test_a_program_that_ends_is_reported_with_its_log(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\necho no such flag >&2\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(StartError, match=r"etcd did not become ready; its log ends:\nno such flag"):
        controlplane.make_etcd(program, tmp_path).start()


def test_a_folder_without_the_programs(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(
        StartError, match=r"KUBEBUILDER_ASSETS names .*, which lacks etcd and kube-apiserver$"
    ):
        ControlPlane(tmp_path, tmp_path, authority)
    (tmp_path / "etcd").touch()
    with pytest.raises(StartError, match=r"KUBEBUILDER_ASSETS names .*, which lacks kube-apiserver$"):
        ControlPlane(tmp_path, tmp_path, authority)
    monkeypatch.setenv(controlplane.VARIABLE, str(tmp_path))
    assert controlplane.find_controllers() is None
