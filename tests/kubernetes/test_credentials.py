"""Kubeconfig files, service accounts, and their renewal."""

import base64
import datetime as dt
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import errors
from adapter.kubernetes import credentials
from adapter.kubernetes.credentials import ClientConfiguration
from adapter.telemetry.problems import ProblemLog
from tests.support.answers import answers
from tests.support.clock import FakeClock
from tests.support.tls import Authority

Load = Callable[[Path | None], Awaitable[ClientConfiguration]]


@pytest.fixture
def load(clock: FakeClock, faults: ProblemLog) -> Load:
    return lambda path: credentials.load_configuration([] if path is None else [path], clock, faults)


def write_kubeconfig(path: Path, user: Mapping[str, Any], **cluster: Any) -> Path:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


async def test_kubeconfig(tmp_path: Path, load: Load) -> None:
    options = {
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
        "insecure-skip-tls-verify": True,
    }
    path = write_kubeconfig(tmp_path / "config", {"token": "secret"}, **options)
    configuration = await load(path)
    assert configuration.host == "http://127.0.0.1:1"
    assert configuration.tls_server_name == "kubernetes"
    assert configuration.proxy == "http://proxy:3128"
    assert configuration.verify is False
    assert await configuration.authorization() == "Bearer secret"


@pytest.mark.parametrize(("user", "expected"), answers("kubernetes/credentials", "authorization"))
async def test_authorization(user: Mapping[str, str], expected: str, tmp_path: Path, load: Load) -> None:
    configuration = await load(write_kubeconfig(tmp_path / "c", user))
    assert await configuration.authorization() == expected


@pytest.mark.parametrize("context", [{}, {"namespace": "ops"}])
async def test_the_namespace_is_that_of_the_context(
    context: dict[str, str], tmp_path: Path, load: Load
) -> None:
    path = write_kubeconfig(tmp_path / "c", {})
    document = yaml.safe_load(path.read_text())
    document["contexts"][0]["context"].pop("namespace", None)
    document["contexts"][0]["context"] |= context
    path.write_text(yaml.safe_dump(document))
    configuration = await load(path)
    assert configuration.namespace == context.get("namespace", "")


@pytest.mark.parametrize("text", answers("kubernetes/credentials", "files that are no kubeconfig"))
async def test_files_that_are_no_kubeconfig(
    text: str, tmp_path: Path, faults: ProblemLog, load: Load
) -> None:
    path = tmp_path / "config"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(errors.InputError) as raised:
        await load(path)
    (fault,) = raised.value.faults
    assert (fault.path, fault.value) == ("--lister-kubeconfig", str(path))


API = "client.authentication.k8s.io/v1"


def plugin_that_says(status: Mapping[str, Any]) -> dict[str, Any]:
    answer = {"apiVersion": API, "kind": "ExecCredential", "status": status}
    return {"exec": {"apiVersion": API, "command": "echo", "args": [json.dumps(answer)], "env": None}}


@pytest.mark.parametrize(("user", "reason"), answers("kubernetes/credentials", "unusable users"))
async def test_users_that_cannot_be_used(
    user: Mapping[str, Any], reason: str, tmp_path: Path, load: Load
) -> None:
    with pytest.raises(errors.InputError, match=f"expected a usable kubeconfig file .*{reason}"):
        await load(write_kubeconfig(tmp_path / "c", user))


async def test_files_are_relative_to_the_kubeconfig(tmp_path: Path, load: Load) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("folder/token", "folder/own.crt", "own.key", "ca.crt"):
        (tmp_path / name).write_text("from-file\n")
    key = str(tmp_path / "own.key")
    path = write_kubeconfig(
        tmp_path / "folder" / "c",
        {"token": "old", "tokenFile": "token", "client-certificate": "own.crt", "client-key": key},
        server="https://127.0.0.1:1",
        **{"certificate-authority": "../ca.crt"},
    )
    configuration = await load(path)
    assert await configuration.authorization() == "Bearer from-file", "a token file wins over a token"
    assert configuration.ca_file == str(tmp_path / "ca.crt")
    assert (configuration.cert_file, configuration.key_file) == (str(tmp_path / "folder" / "own.crt"), key)


async def test_a_file_that_is_not_there(tmp_path: Path, load: Load) -> None:
    with pytest.raises(errors.InputError, match="there is no such file"):
        await load(tmp_path / "absent")


async def test_neither_file_nor_cluster(monkeypatch: pytest.MonkeyPatch, load: Load) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.InputError) as raised:
        await load(None)
    assert str(raised.value) == (
        "--lister-kubeconfig: expected a kubeconfig file: set --lister-kubeconfig, or run in a pod of the "
        "cluster "
        "(KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set)"
    )


async def test_a_token_file_is_read_again(
    tmp_path: Path, clock: FakeClock, faults: ProblemLog, load: Load
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    path = write_kubeconfig(tmp_path / "c", {"tokenFile": str(token)})
    configuration = await load(path)
    token.write_text("second\n")
    assert await configuration.authorization() == "Bearer first"
    clock.advance(credentials.RENEWAL_SECONDS)
    assert await configuration.authorization() == "Bearer second"
    token.unlink()
    clock.advance(credentials.RENEWAL_SECONDS)
    assert await configuration.authorization() == "Bearer second"
    assert list(faults.active()) == [("credentials", "")]
    token.write_text("third")
    clock.advance(credentials.RENEWAL_SECONDS)
    assert await configuration.authorization() == "Bearer third"
    assert not faults.active()


PLUGIN = """\
#!/bin/sh
echo x >> "$(dirname "$0")/runs"
runs=$(wc -l < "$(dirname "$0")/runs")
printf '{"apiVersion": "%s", "kind": "ExecCredential", "status": {"token": "%s-%d"%s}}' \\
    "$1" "$PREFIX" "$runs" "$EXPIRES"
case $KUBERNETES_EXEC_INFO in *ExecCredential*) ;; *) exit 1 ;; esac
"""


def write_plugin(folder: Path, expires: str) -> Path:
    """Write a kubeconfig whose plugin counts its runs."""
    plugin = folder / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o700)
    variables = [{"name": "PREFIX", "value": "token"}, {"name": "EXPIRES", "value": expires}]
    user = {"exec": {"command": "./plugin", "args": [API], "apiVersion": API, "env": variables}}
    return write_kubeconfig(folder / "c", user)


async def test_nulls_of_an_exec_plugin_are_absent(tmp_path: Path, load: Load) -> None:
    nulls = {"expirationTimestamp": None, "clientCertificateData": None, "clientKeyData": None}
    path = write_kubeconfig(tmp_path / "c", plugin_that_says({"token": "abc", **nulls}))
    configuration = await load(path)
    assert await configuration.authorization() == "Bearer abc"


async def test_an_exec_plugin_is_asked_again(tmp_path: Path, clock: FakeClock, load: Load) -> None:
    configuration = await load(write_plugin(tmp_path, ""))
    assert await configuration.authorization() == "Bearer token-1"
    assert await configuration.authorization() == "Bearer token-1"
    clock.advance(credentials.RENEWAL_SECONDS)
    assert await configuration.authorization() == "Bearer token-2"


async def test_an_exec_plugin_is_asked_again_before_its_token_expires(
    tmp_path: Path, clock: FakeClock, load: Load
) -> None:
    expiry = dt.datetime.fromtimestamp(clock.wall() + 600, dt.UTC).isoformat()
    path = write_plugin(tmp_path, f', "expirationTimestamp": "{expiry}"')
    configuration = await load(path)
    clock.advance(290)
    assert await configuration.authorization() == "Bearer token-1"
    clock.advance(credentials.RENEWAL_SECONDS)
    assert await configuration.authorization() == "Bearer token-2"


async def test_service_account(
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: FakeClock,
    faults: ProblemLog,
    load: Load,
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "ca.crt").write_bytes(authority.file.read_bytes())
    configuration = await load(None)
    assert configuration.host == "https://[fd00::1]:443"
    assert configuration.ca_file == str(tmp_path / "ca.crt")
    assert await configuration.authorization() == "Bearer first"
    for text, expected in (("second", "Bearer second"), ("", "Bearer second"), ("third", "Bearer third")):
        token.write_text(text)
        clock.advance(credentials.RENEWAL_SECONDS)
        assert await configuration.authorization() == expected
        assert bool(faults.active()) is not bool(text)


@pytest.mark.parametrize("source", ["inline", "exec"])
async def test_inline_certificates_leave_no_file_open(source: str, tmp_path: Path, load: Load) -> None:
    opened = count_open_files()
    for number in range(20):
        certificate, key, authority = f"certificate {number}", f"key {number}", f"authority {number}"
        user: dict[str, Any] = {
            "client-certificate-data": encode(certificate),
            "client-key-data": encode(key),
        }
        if source == "exec":
            user = plugin_that_says({"clientCertificateData": certificate, "clientKeyData": key})
        path = write_kubeconfig(
            tmp_path / "config",
            user,
            server="https://127.0.0.1:1",
            **{"certificate-authority-data": encode(authority)},
        )
        configuration = await load(path)
        files = (configuration.cert_file, configuration.key_file, configuration.ca_file)
        assert [read(file) for file in files] == [(certificate, 0o600), (key, 0o600), (authority, 0o600)]
        again = await load(path)
        assert (again.cert_file, again.key_file, again.ca_file) == files
    assert count_open_files() < opened + 20


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def read(file: str | None) -> tuple[str, int]:
    path = Path(str(file))
    return path.read_text(), path.stat().st_mode & 0o777


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# -- our own Pod ---------------------------------------------------------------------------------------------


def test_the_namespace_is_the_environments_else_the_service_accounts(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    assert credentials.find_namespace({}, file) == ""
    file.write_text("ops\n", encoding="utf-8")
    assert credentials.find_namespace({}, file) == "ops"
    assert credentials.find_namespace({"POD_NAMESPACE": "shop"}, file) == "shop"


def test_every_process_has_an_identity_of_its_own_that_names_the_pod() -> None:
    first, second = (credentials.new_identity({"POD_NAME": "web-0"}) for _ in range(2))
    assert first != second
    assert credentials.pod_of(first) == credentials.pod_of(second) == "web-0"
    assert credentials.pod_of(credentials.new_identity({})) == socket.gethostname()
