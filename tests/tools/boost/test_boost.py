import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fastpath_sandbox.apiserver import patches
from tests.support.kubectl import Kubectl
from tests.support.verbs import Printed

DOCUMENTS = Path(__file__).parents[2] / "data" / "documents"
HPA, BOOSTED, OLD = ((DOCUMENTS / f"{name}.yaml").read_text() for name in ("shop", "shop-boosted", "hpa-v1"))
Run = Callable[..., Printed]


def test_the_file_stays_as_it_is(tmp_path: Path, cli: Run) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(HPA)
    assert cli("boost", str(path)).out == BOOSTED
    assert path.read_text() == HPA


def test_lines_that_end_as_in_windows(cli: Run) -> None:
    boosted = BOOSTED.replace("\n", "\r\n")
    for given in (HPA.replace("\n", "\r\n"), boosted):
        assert cli("boost", "--handshake", "external", "-", stdin=given).out == boosted


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
