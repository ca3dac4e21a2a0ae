"""The serving certificate: where it comes from, and that all objects of a release agree on it."""

import base64
import datetime as dt
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import verification

from fastpath_tools import certs
from tests.chart import charts
from tests.chart.charts import NOTES
from tests.support.rendered import Objects

Values = dict[str, Any]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

ALL: Values = {
    "scaler": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "rules": {"external": [{"seriesQuery": "a"}]},
}
PAIR = {"tls": {"enable": True, "certificate": "certificate", "key": "key", "ca": "authority"}}
EXISTING = {"tls": {"existingSecret": "mine", "ca": "authority"}}


def decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def bundles(objects: Objects) -> set[str | None]:
    return {each["spec"].get("caBundle") for each in objects.all("APIService")}


def mounted(objects: Objects) -> set[str]:
    """Return the Secrets that the pods mount."""
    return {
        volume["secret"]["secretName"]
        for deployment in objects.all("Deployment")
        for volume in deployment["spec"]["template"]["spec"]["volumes"]
        if "secret" in volume
    }


def test_the_chart_makes_a_pair_that_the_api_server_verifies() -> None:
    objects = charts.render(ALL, name="metrics", namespace="monitoring")
    data = objects.one("Secret")["data"]
    authority = x509.load_pem_x509_certificate(decoded(data["ca.crt"]))
    certificate = x509.load_pem_x509_certificate(decoded(data["tls.crt"]))
    key = serialization.load_pem_private_key(decoded(data["tls.key"]), password=None)
    assert key.public_key() == certificate.public_key()
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    service = objects.one("Service", "metrics-fastpath")["metadata"]
    assert tuple(names.get_values_for_type(x509.DNSName)) == certs.service_names(
        service["name"], service["namespace"]
    )
    verifier = verification.PolicyBuilder().store(verification.Store([authority]))
    verifier.build_server_verifier(x509.DNSName("metrics-fastpath.monitoring.svc")).verify(certificate, [])
    validity = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert dt.timedelta(days=3649) < validity < dt.timedelta(days=3651)


def test_all_objects_have_the_same_authority() -> None:
    objects = charts.render(ALL)
    secret = objects.one("Secret")
    assert bundles(objects) == {secret["data"]["ca.crt"]}
    authorities = objects.one("ConfigMap", "fastpath-serving-ca")["data"]["ca.crt"]
    assert authorities.strip().encode() == decoded(secret["data"]["ca.crt"]).strip()
    assert mounted(objects) == {secret["metadata"]["name"]}
    for monitor in objects.all("ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["tlsConfig"] == {
            "serverName": "fastpath.fastpath.svc",
            "ca": {"configMap": {"name": "fastpath-serving-ca", "key": "ca.crt"}},
        }


def test_the_key_of_the_authority_is_nowhere() -> None:
    files = charts.render_files(ALL)
    data = charts.render(ALL).one("Secret")["data"]
    assert data.keys() == {"ca.crt", "tls.crt", "tls.key"}
    assert "PRIVATE KEY" not in "".join(files.values())
    assert b"PRIVATE KEY" in decoded(data["tls.key"])


@pytest.mark.parametrize(
    "values", [PAIR, EXISTING, {"certManager": {"enabled": True}}], ids=["given", "existing", "cert-manager"]
)
def test_a_rendering_is_the_same_each_time(values: Values) -> None:
    """A tool that renders again and again, such as Argo CD, sees no change."""
    assert charts.render_files(ALL | values) == charts.render_files(ALL | values)


def test_only_a_generated_certificate_differs_each_time() -> None:
    first, second = charts.render_files(ALL), charts.render_files(ALL)
    assert {path for path in first if first[path] != second[path]} == {
        "templates/apiservices.yaml",
        "templates/certificates.yaml",
    }
    assert "makes another one each time" in " ".join(first[f"templates/{NOTES}"].split())
