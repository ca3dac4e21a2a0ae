import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fastpath_sandbox.apiserver import patches
from tests.support.kubectl import Kubectl
from tests.support.simulation import Printed

HPA = """\
# who shops
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
  annotations: {owner: "shop"} # é
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 20
  metrics:
  - type: Pods
    pods:
      metric: {name: requests}
      target: {type: AverageValue, averageValue: "0.5k"}
"""
BOOSTED = (
    HPA.replace('"shop"}', '"shop", fastpath.io/mode: boost}')
    + """\
  - type: External
    external:
      metric:
        name: fastpath_replicas
        selector:
          matchLabels:
            autoscaler: web
      target:
        type: AverageValue
        averageValue: "1"
"""
)
FORECAST = '"shop", fastpath.io/forecast: Floor'
SERVICE = "kind: Service # first\n"
OLD = """\
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata:
  name: web
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: web
  maxReplicas: 20
"""


NEEDS = (
    "fastpath boost: a boosted HPA needs components/scaler, and the floors that it makes Fastpath serve: "
    "without them it does not scale down; fastpath doctor says whether they are there "
    "(docs/guides/boost.md)\n"
)

Run = Callable[..., Printed]


def test_a_manifest(tmp_path: Path, cli: Run) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(f"{SERVICE}---\n{HPA}")
    assert cli("boost", str(path)) == (0, f"{SERVICE}---\n{BOOSTED}", NEEDS)
    assert path.read_text() == f"{SERVICE}---\n{HPA}"


@pytest.mark.parametrize(
    ("flags", "given", "printed"),
    [
        ([], BOOSTED, BOOSTED),
        (["-o", "yaml"], HPA, BOOSTED),
        (["--remove"], BOOSTED, HPA),
        (["--remove"], HPA, HPA),
        (["--advise"], BOOSTED, HPA.replace('"shop"}', '"shop", fastpath.io/mode: advise}')),
        (["--handshake", "external"], BOOSTED.replace("\n", "\r\n"), BOOSTED.replace("\n", "\r\n")),
        ([], HPA.replace('"shop"', FORECAST), BOOSTED.replace('"shop"', FORECAST)),
        (["--remove"], BOOSTED.replace('"shop"', FORECAST), HPA.replace('"shop"', FORECAST)),
    ],
)
def test_standard_input(flags: list[str], given: str, printed: str, cli: Run) -> None:
    begins = "mode: boost" in printed and printed != given
    assert cli("boost", "-", *flags, stdin=given) == (0, printed, NEEDS if begins else "")


def test_the_other_handshake(cli: Run) -> None:
    status, out, err = cli("boost", "--handshake=object", "-", stdin=BOOSTED)
    assert (status, err) == (0, NEEDS)
    described = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "web"}
    source = {
        "metric": {"name": "fastpath_replicas"},
        "describedObject": described,
        "target": {"type": "AverageValue", "averageValue": "1"},
    }
    assert yaml.safe_load(out)["spec"]["metrics"][1:] == [{"type": "Object", "object": source}]
    assert out.startswith(BOOSTED.partition("  - type: External")[0])


def test_what_people_may_not_expect_is_said(cli: Run) -> None:
    name = "w" * 64
    text = OLD.replace("name: web\nspec", f"name: {name}\nspec")
    status, out, err = cli("boost", "-", "--handshake", "external", stdin=text)
    start = f"fastpath boost: standard input:1: HorizontalPodAutoscaler {name}: "
    assert (status, err.splitlines()) == (
        0,
        [
            f"{start}converted from autoscaling/v1 to autoscaling/v2: autoscaling/v1 has only one metric",
            f"{start}its name has more than 63 characters, so the floor is added as an Object metric",
            f"{start}it has no metrics, so the API's default is written out: cpu at 80 %",
            NEEDS.rstrip(),
        ],
    )
    changed = yaml.safe_load(out)
    assert [metric["type"] for metric in changed["spec"]["metrics"]] == ["Resource", "Object"]
    assert changed["apiVersion"] == "autoscaling/v2"


def test_two_autoscalers_of_one_target(cli: Run) -> None:
    other = HPA.replace("name: web\n  annotations", "name: more\n  annotations")
    twice = (
        f"{HPA}---\n{other}---\n{HPA.replace('kind: Deployment, name: web', 'kind: Deployment, name: api')}"
    )
    said = cli("boost", "-", stdin=twice).err
    advice = "keep only one autoscaler for Deployment web\n"
    assert f"HorizontalPodAutoscaler web: Deployment web is also scaled by more: {advice}" in said
    assert f"HorizontalPodAutoscaler more: Deployment web is also scaled by web: {advice}" in said
    assert "Deployment api" not in said


def test_a_patch(cli: Run) -> None:
    status, out, err = cli("boost", "-o", "patch", "-", stdin=f"{SERVICE}---\n{HPA}")
    assert (status, err) == (0, NEEDS)
    patch = json.loads(out)
    assert patch[0] == {"op": "add", "path": "/metadata/annotations/fastpath.io~1mode", "value": "boost"}
    assert (patch[1]["op"], patch[1]["path"], len(patch)) == ("add", "/spec/metrics/-", 2)
    assert patches.json_patch(yaml.safe_load(HPA), patch) == yaml.safe_load(BOOSTED)
    assert json.loads(cli("boost", "--output=patch", "-", stdin=BOOSTED).out) == []


def test_a_patch_leaves_other_annotations_of_the_object(cli: Run) -> None:
    """Of a file with nothing but the mode: what kubectl apply and others have added is not in it."""
    boosted = BOOSTED.replace('owner: "shop", ', "")
    patch = json.loads(cli("boost", "--remove", "-o", "patch", "-", stdin=boosted).out)
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    live = yaml.safe_load(boosted)
    live["metadata"]["annotations"][applied] = "{}"
    assert patches.json_patch(live, patch)["metadata"]["annotations"] == {applied: "{}"}


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("flags", "given"),
    [([], HPA), ([], OLD.replace("/v1\nkind: Hor", "/v2\nkind: Hor")), (["--remove"], BOOSTED)],
)
async def test_kubectl_makes_the_same_of_the_patch(
    flags: list[str], given: str, kubectl: Kubectl, tmp_path: Path, cli: Run
) -> None:
    hpa, patch = tmp_path / "hpa.yaml", tmp_path / "patch.json"
    hpa.write_text(given)
    patch.write_text(cli("boost", str(hpa), *flags, "-o", "patch").out)
    changed = cli("boost", str(hpa), *flags).out
    local = ("patch", "--local", "-f", str(hpa), "--type", "json", "--patch-file", str(patch), "-o", "yaml")
    finished = await kubectl.run("http://127.0.0.1:1", *local)
    assert finished.status == 0, finished.stderr
    assert yaml.safe_load(finished.stdout) == yaml.safe_load(changed)


@pytest.mark.parametrize(
    ("flags", "text", "said"),
    [
        ([], b"", "standard input: expected a HorizontalPodAutoscaler; the file has no such object"),
        (
            [],
            b"kind: Pod\n",
            "standard input: expected a HorizontalPodAutoscaler; the file has no such object",
        ),
        ([], b"\xff", "standard input: not UTF-8: invalid start byte at byte 0"),
        ([], b"a: [", "standard input:1: not YAML"),
        (
            [],
            HPA.replace("/v2", "/v2beta2").encode(),
            'standard input:2: apiVersion: "autoscaling/v2beta2": expected',
        ),
        ([], HPA.replace("20", "0").encode(), "standard input:9: spec.maxReplicas: Invalid value: 0"),
        (
            ["-o", "patch"],
            f"{HPA}---\n{HPA}".encode(),
            "standard input:17: expected one HorizontalPodAutoscaler",
        ),
        (
            ["--remove", "--handshake", "object"],
            b"",
            "--handshake: object: cannot be combined with --remove",
        ),
        (
            ["--advise", "--handshake=external"],
            b"",
            "--handshake: external: cannot be combined with --advise",
        ),
    ],
)
def test_what_is_wrong(flags: list[str], text: bytes, said: str, cli: Run) -> None:
    printed = cli("boost", "-", *flags, stdin=text)
    assert (printed.status, printed.out) == (2, "")
    assert printed.err.startswith(f"fastpath boost: {said}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-", "--advise", "--remove"], "--remove: cannot be combined with --advise"),
        (["-", "-o", "json"], '--output: "json": expected yaml or patch'),
        (["-", "--handshake", "pods"], '--handshake: "pods": expected object or external'),
        (["-", "--handshak=external"], "--handshak: unknown flag, did you mean --handshake?"),
        (["-", "-"], 'FILE: "- -": expected one file, or - for standard input'),
        (["/x.yaml"], "/x.yaml: expected a readable file: No such file or directory"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], said: str, cli: Run) -> None:
    assert cli("boost", *arguments) == (2, "", f"fastpath boost: {said}\n")
