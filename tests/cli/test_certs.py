"""`fastpath certs`: what it prints is a Secret that serves and bundles that vouch for it."""

import base64
import datetime as dt
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.cli import certs, main
from adapter.errors import InputError
from adapter.sandbox.cluster import Cluster
from tests.support import rendered
from tests.support.kubectl import Kubectl

JSON = dict[str, Any]
NAMES = ["fastpath", "fastpath.fastpath", "fastpath.fastpath.svc", "fastpath.fastpath.svc.cluster.local"]


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[JSON]:
    assert certs.main(arguments) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def _decoded(secret: JSON, name: str) -> bytes:
    return base64.b64decode(secret["data"][name])


def _handshake(secret: JSON, bundle: bytes, name: str, folder: Path) -> None:
    """Shake hands in memory, as the API server does: it trusts the bundle alone and wants the Service's name."""
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
    assert secret["metadata"]["name"] in {volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
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


@pytest.mark.parametrize("name", NAMES)
def test_the_bundle_vouches_for_the_secret(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    secret, *registrations = _run(capsys)
    for each in registrations:
        _handshake(secret, base64.b64decode(each["spec"]["caBundle"]), name, tmp_path)


def test_no_other_name_and_no_other_authority(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    secret, registration, *_ = _run(capsys)
    other, *_ = _run(capsys)
    bundle = base64.b64decode(registration["spec"]["caBundle"])
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(secret, bundle, "fastpath.other.svc", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get local issuer|self-signed|self signed"):
        _handshake(secret, _decoded(other, "ca.crt"), NAMES[2], tmp_path)


def test_one_bundle_for_each_registration_and_nothing_beside(capsys: pytest.CaptureFixture[str]) -> None:
    _, *registrations = _run(
        capsys, "--groups=custom.metrics.k8s.io,external.metrics.k8s.io", "--groups=metrics.k8s.io", "--service=other"
    )
    assert [each["metadata"] for each in registrations] == [
        {"name": "v1beta1.custom.metrics.k8s.io"},
        {"name": "v1beta2.custom.metrics.k8s.io"},
        {"name": "v1beta1.external.metrics.k8s.io"},
        {"name": "v1beta1.metrics.k8s.io"},
    ]
    assert all(each["spec"].keys() == {"caBundle"} for each in registrations)
    assert len({each["spec"]["caBundle"] for each in registrations}) == 1


def test_a_renewal_is_believed_before_during_and_after(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The order of the documentation: bundle with old and new, then the Secret. Nothing is refused at any moment."""
    before, first, *_ = _run(capsys)
    (tmp_path / "ca.crt").write_bytes(_decoded(before, "ca.crt"))
    after, second, *_ = _run(capsys, f"--previous={tmp_path / 'ca.crt'}")
    bundles = [base64.b64decode(each["spec"]["caBundle"]) for each in (first, second)]
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
    secret, registration, *_ = _run(capsys, f"--previous={tmp_path / 'ca.crt'}")
    assert base64.b64decode(registration["spec"]["caBundle"]) == _decoded(secret, "ca.crt")


def test_a_folder_holds_the_same_for_its_owner_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "certs"
    assert certs.main(["-o", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "secret.yaml holds the private key" in said
    assert "PRIVATE" not in said
    files = {path.name: path for path in folder.iterdir()}
    assert set(files) == {"kustomization.yaml", "secret.yaml", "ca-bundle.yaml", "ca.crt"}
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    secret = yaml.safe_load(files["secret.yaml"].read_text())
    registration, *_ = yaml.safe_load_all(files["ca-bundle.yaml"].read_text())
    assert files["ca.crt"].read_bytes() == _decoded(secret, "ca.crt")
    assert base64.b64decode(registration["spec"]["caBundle"]) == _decoded(secret, "ca.crt")
    assert (
        files["secret.yaml"].read_text().startswith("# Made by `fastpath certs` for fastpath/fastpath, good until 20")
    )


def test_a_key_in_use_is_never_overwritten(tmp_path: Path) -> None:
    assert certs.main(["-o", str(tmp_path)]) == 0
    before = (tmp_path / "secret.yaml").read_bytes()
    with pytest.raises(InputError, match=r"--output: .*: is there already: expected a new folder"):
        certs.main(["-o", str(tmp_path)])
    assert (tmp_path / "secret.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "expected a PEM file of authorities: No such file or directory"),
        ("nothing", "expected a PEM file of authorities: it holds no certificate"),
    ],
    ids=["absent", "no certificate"],
)
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
    assert main.main(["certs", "-o", str(tmp_path / "file" / "certs")]) == 2
    assert "expected a folder to write into: Not a directory" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert certs.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Usage: fastpath certs [flags]\n")
    assert "--previous" in text


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_the_folder_is_a_component_of_the_manifests(tmp_path: Path) -> None:
    assert certs.main(["-o", str(tmp_path / "certs")]) == 0
    overlay = rendered.write_overlay(tmp_path / "overlay", ["external", tmp_path / "certs"])
    objects = rendered.render(overlay)
    authority = objects.one("Secret", "fastpath-serving")["data"]["ca.crt"]
    assert {each["spec"]["caBundle"] for each in objects.all("APIService")} == {authority}
    assert len(objects.all("APIService")) == 3


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_kubectl_applies_the_bundle_and_changes_nothing_else(tmp_path: Path, kubectl: Kubectl) -> None:
    assert certs.main(["-o", str(tmp_path / "certs")]) == 0
    wanted = yaml.safe_load((tmp_path / "certs" / "secret.yaml").read_text())["data"]["ca.crt"]
    async with Cluster() as cluster:
        before = [cluster.create(each) for each in rendered.read_base().all("APIService")]
        manager = "--field-manager=fastpath-certs"
        file = str(tmp_path / "certs" / "ca-bundle.yaml")
        done = await kubectl.run(cluster.url, "apply", "--server-side", "--validate=false", manager, "-f", file)
        assert done.status == 0, done.stderr
        for each in before:
            found = cluster.get("APIService", each["metadata"]["name"])
            assert found["spec"] == {**each["spec"], "caBundle": wanted}
