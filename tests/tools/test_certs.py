"""`fastpath certs`: what it prints is a Secret that serves and bundles that vouch for it."""

import base64
import datetime as dt
import json
import shlex
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.cli import main
from adapter.errors import InputError
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_tools import certs
from tests.support import rendered
from tests.support.answers import answers
from tests.support.kubectl import Kubectl

JSON = dict[str, Any]
NAMES = ["fastpath", "fastpath.fastpath", "fastpath.fastpath.svc", "fastpath.fastpath.svc.cluster.local"]


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[JSON]:
    assert certs.main(arguments) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def _authorities(config_map: JSON) -> bytes:
    text: str = config_map["data"]["ca.crt"]
    return text.encode()


def _decoded(secret: JSON, name: str) -> bytes:
    return base64.b64decode(secret["data"][name])


def _handshake(secret: JSON, bundle: bytes, name: str, folder: Path) -> None:
    """Shake hands in memory, as the API server does.

    It trusts the bundle alone and wants the Service's name.
    """
    for part in ("tls.crt", "tls.key"):
        (folder / part).write_bytes(_decoded(secret, part))
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.load_verify_locations(cadata=bundle.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    done: set[ssl.SSLObject] = set()
    for _ in range(6):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            done.add(side)
    assert done == {client, server}


def test_the_secret_is_the_one_that_the_deployment_mounts(capsys: pytest.CaptureFixture[str]) -> None:
    secret, *_ = _run(capsys)
    volumes = rendered.read_base().pod["volumes"]
    assert secret["metadata"]["name"] in {
        volume["secret"]["secretName"] for volume in volumes if "secret" in volume
    }
    assert (secret["kind"], secret["type"], secret["metadata"]["namespace"]) == (
        "Secret",
        "kubernetes.io/tls",
        "fastpath",
    )
    assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}


def test_what_is_in_the_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    secret, *_ = _run(capsys, "--days=30")
    (leaf,) = x509.load_pem_x509_certificates(_decoded(secret, "tls.crt"))
    (authority,) = x509.load_pem_x509_certificates(_decoded(secret, "ca.crt"))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert sorted(names.get_values_for_type(x509.DNSName)) == NAMES
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.value.ca, constraints.value.path_length, constraints.critical) == (True, 0, True)
    assert authority.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    leaf.verify_directly_issued_by(authority)
    for each in (leaf, authority):
        length = each.not_valid_after_utc - each.not_valid_before_utc
        assert length == dt.timedelta(days=30, hours=1)
    assert authority.public_key() != leaf.public_key()


def test_the_names_of_a_service() -> None:
    assert certs.service_names("adapter", "metrics") == (
        "adapter",
        "adapter.metrics",
        "adapter.metrics.svc",
        "adapter.metrics.svc.cluster.local",
    )


def test_the_bundle_vouches_for_the_secret(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    secret, config_map = _run(capsys)
    for name in NAMES:
        _handshake(secret, _authorities(config_map), name, tmp_path)


def test_no_other_name_and_no_other_authority(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    secret, config_map = _run(capsys)
    other, *_ = _run(capsys)
    bundle = _authorities(config_map)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(secret, bundle, "fastpath.other.svc", tmp_path)
    with pytest.raises(
        ssl.SSLCertVerificationError, match=r"unable to get local issuer|self-signed|self signed"
    ):
        _handshake(secret, _decoded(other, "ca.crt"), NAMES[2], tmp_path)


def test_the_authorities_are_published_without_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    secret, config_map = _run(capsys, "--namespace=other")
    assert (config_map["kind"], config_map["metadata"]["name"]) == ("ConfigMap", "fastpath-serving-ca")
    assert config_map["metadata"]["namespace"] == "other"
    assert config_map["data"] == {"ca.crt": _decoded(secret, "ca.crt").decode()}


def test_one_patch_for_each_registration(capsys: pytest.CaptureFixture[str]) -> None:
    groups = (
        "--groups=custom.metrics.k8s.io,external.metrics.k8s.io",
        "--groups=metrics.k8s.io",
        "--service=other",
    )
    assert certs.main(groups) == 0
    captured = capsys.readouterr()
    secret, _ = yaml.safe_load_all(captured.out)
    first, *commands = (shlex.split(line) for line in captured.err.splitlines())
    assert first[0] == "Make"
    assert [words[:4] for words in commands] == [
        ["kubectl", "patch", "apiservice", "v1beta1.custom.metrics.k8s.io"],
        ["kubectl", "patch", "apiservice", "v1beta2.custom.metrics.k8s.io"],
        ["kubectl", "patch", "apiservice", "v1beta1.external.metrics.k8s.io"],
        ["kubectl", "patch", "apiservice", "v1beta1.metrics.k8s.io"],
        ["kubectl", "patch", "apiservice", "v1.metrics.k8s.io"],
    ]
    for words in commands:
        assert words[4:6] == ["--type=merge", "-p"]
        assert json.loads(words[6]) == {"spec": {"caBundle": secret["data"]["ca.crt"]}}


def test_a_renewal_is_believed_before_during_and_after(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The order of the documentation: bundle with old and new, then the Secret.

    Nothing is refused at any moment.
    """
    before, first = _run(capsys)
    (tmp_path / "ca.crt").write_bytes(_decoded(before, "ca.crt"))
    after, second = _run(capsys, f"--previous={tmp_path / 'ca.crt'}")
    bundles = [_authorities(each) for each in (first, second)]
    for secret, bundle in ((before, bundles[0]), (before, bundles[1]), (after, bundles[1])):
        _handshake(secret, bundle, NAMES[2], tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(after, bundles[0], NAMES[2], tmp_path)  # the wrong order
    assert _decoded(after, "ca.crt") != bundles[1]  # the new one alone: the next renewal forgets the oldest
    assert len(x509.load_pem_x509_certificates(_decoded(after, "ca.crt"))) == 1


def _ended_authority() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ended")])
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(moment).not_valid_after(moment + dt.timedelta(days=1))
    pem: bytes = built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return pem


def test_an_authority_that_ended_is_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(_ended_authority())
    secret, config_map = _run(capsys, f"--previous={tmp_path / 'ca.crt'}")
    assert _authorities(config_map) == _decoded(secret, "ca.crt")


def test_a_folder_holds_the_same_for_its_owner_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "certs"
    assert certs.main(["--out-dir", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "secret.yaml holds the private key" in said
    assert "PRIVATE" not in said
    files = {path.name: path for path in folder.iterdir()}
    assert set(files) == {"kustomization.yaml", "secret.yaml", "ca-configmap.yaml", "ca.crt"}
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    secret = yaml.safe_load(files["secret.yaml"].read_text())
    assert files["ca.crt"].read_bytes() == _decoded(secret, "ca.crt")
    assert _authorities(yaml.safe_load(files["ca-configmap.yaml"].read_text())) == _decoded(secret, "ca.crt")
    assert (
        files["secret.yaml"]
        .read_text()
        .startswith("# Made by `fastpath certs` for fastpath/fastpath, good until 20")
    )


def test_a_key_in_use_is_never_overwritten(tmp_path: Path) -> None:
    assert certs.main(["--out-dir", str(tmp_path)]) == 0
    before = (tmp_path / "secret.yaml").read_bytes()
    with pytest.raises(InputError, match=r"--out-dir: .*: exists: expected a new folder"):
        certs.main(["--out-dir", str(tmp_path)])
    assert (tmp_path / "secret.yaml").read_bytes() == before


@pytest.mark.parametrize(("content", "sentence"), answers("tools/certs", "unusable"))
def test_what_cannot_be_used_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None, sentence: str
) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    assert main.main(["certs", f"--previous={path}"]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"fastpath certs: --previous: {path}: {sentence}\n"
    assert captured.out == ""


def test_a_folder_that_cannot_be_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert main.main(["certs", "--out-dir", str(tmp_path / "file" / "certs")]) == 2
    assert "expected a folder to write into: Not a directory" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_the_folder_is_a_component_of_the_manifests(tmp_path: Path) -> None:
    assert certs.main(["--out-dir", str(tmp_path / "certs")]) == 0
    overlay = rendered.write_overlay(tmp_path / "overlay", ["external", tmp_path / "certs"])
    objects = rendered.render(overlay)
    authority = objects.one("Secret", "fastpath-serving")["data"]["ca.crt"]
    assert {each["spec"]["caBundle"] for each in objects.all("APIService")} == {authority}
    assert len(objects.all("APIService")) == 3
    assert (
        objects.one("ConfigMap", "fastpath-serving-ca")["data"]["ca.crt"]
        == base64.b64decode(authority).decode()
    )


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_kubectl_sets_the_bundle_and_changes_nothing_else(
    capsys: pytest.CaptureFixture[str], kubectl: Kubectl
) -> None:
    """The commands as they are printed, on APIServices that were applied from the client.

    No warning, one field.
    """
    assert certs.main([]) == 0
    captured = capsys.readouterr()
    wanted = next(yaml.safe_load_all(captured.out))["data"]["ca.crt"]
    async with Cluster() as cluster:
        apply = ("apply", "--validate=false", "-f", str(rendered.MANIFESTS / "base" / "apiservices.yaml"))
        assert (await kubectl.run(cluster.url, *apply)).status == 0
        before = {each["metadata"]["name"]: each["spec"] for each in cluster.list("APIService")}
        assert len(before) == 2
        for line in captured.err.splitlines()[1:]:
            done = await kubectl.run(cluster.url, *shlex.split(line)[1:])
            assert (done.status, done.stderr) == (0, "")
        for each in cluster.list("APIService"):
            assert each["spec"] == {**before[each["metadata"]["name"]], "caBundle": wanted}
