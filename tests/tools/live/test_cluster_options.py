"""Options of verbs that ask a cluster or name Fastpath's Service, and the connection."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from adapter.config.option_fields import Command
from adapter.errors import InputError
from adapter.model.objects.apiservices import ServiceReference
from fastpath_tools import certs, preflight
from fastpath_tools.live import cluster_options
from fastpath_tools.live.cluster_options import KubeconfigOptions
from tests.support.answering import AnsweringServer
from tests.support.answers import answers

COMMAND = Command(verb="ask", options=KubeconfigOptions, about="Asks.\n")


@pytest.fixture
async def server() -> AsyncIterator[AnsweringServer]:
    async with AnsweringServer() as server:
        yield server


def write(path: Path, url: str) -> Path:
    """Write a kubeconfig whose current context leads nowhere, and the context `there` to `url`."""
    contexts = {"nowhere": "http://127.0.0.1:1", "there": url}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "nowhere",
        "clusters": [{"name": name, "cluster": {"server": each}} for name, each in contexts.items()],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in contexts],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def ask(*arguments: str) -> None:
    options, _ = COMMAND.parse(arguments)
    async with cluster_options.connect(options) as client:
        await client.get("/version")


async def test_context_and_user_are_those_of_the_flags(server: AnsweringServer, tmp_path: Path) -> None:
    file = write(tmp_path / "config", server.url)
    await ask(f"--kubeconfig={file}", "--context=there")
    await ask(f"--kubeconfig={file}", "--context=there", "--as=jane")
    assert [asked.headers.get("Impersonate-User") for asked in server.requests] == [None, "jane"]


async def test_a_context_that_does_not_exist(server: AnsweringServer, tmp_path: Path) -> None:
    file = write(tmp_path / "config", server.url)
    with pytest.raises(
        InputError, match=r"--kubeconfig: .*contexts: expected one with the name 'here', found 0"
    ):
        await ask(f"--kubeconfig={file}", "--context=here")


async def test_a_kubeconfig_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("[" * 5000)
    options, _ = COMMAND.parse([f"--kubeconfig={file}"])
    assert cluster_options.with_context(options) == options
    with pytest.raises(InputError, match="expected a usable kubeconfig file"):
        await ask(f"--kubeconfig={file}")


async def test_a_context_needs_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(InputError, match="--context: here: expected a kubeconfig: set KUBECONFIG"):
        await ask("--context=here")


def test_a_user_has_a_name() -> None:
    with pytest.raises(InputError, match="--as: expected the name of a user"):
        COMMAND.parse(["--as="])


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


@pytest.mark.parametrize(
    ("content", "arguments", "name"), answers("live/cluster_options", "contexts"), ids=str
)
def test_the_name_of_the_context(
    content: str | None, arguments: list[str], name: str, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    options, _ = COMMAND.parse([f"--kubeconfig={file}", *arguments])
    assert cluster_options.read_context(options) == name


def test_there_is_no_context_in_a_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert cluster_options.read_context(KubeconfigOptions()) == ""


def test_the_context_is_that_of_the_start(tmp_path: Path) -> None:
    """Else a later `kubectl config use-context` would have kubectl forward ports of another cluster."""
    file = tmp_path / "kubeconfig"
    file.write_text("current-context: staging\n")
    options = cluster_options.with_context(KubeconfigOptions(kubeconfig=str(file)))
    file.write_text("current-context: production\n")
    assert options.context == cluster_options.read_context(options) == "staging"
