from pathlib import Path
from typing import Any

import pytest
import yaml

from fastpath_sandbox.apiserver import patches
from fastpath_sandbox.apiserver.status import StatusFailure
from tests.support.answers import answers

CASES = yaml.safe_load((Path(__file__).parent / "patches.yaml").read_text())


@pytest.mark.parametrize("kind", CASES)
def test_patches(kind: str) -> None:
    for case in CASES[kind]:
        before = repr(case["target"])
        assert getattr(patches, kind)(case["target"], case["patch"]) == case["result"], case
        assert repr(case["target"]) == before, case


def test_strategic_entry_without_its_merge_key() -> None:
    with pytest.raises(StatusFailure, match="does not contain declared merge key: name"):
        patches.strategic({"containers": []}, {"containers": [{"image": "x"}]})


@pytest.mark.parametrize(("operation", "cause"), answers("sandbox/patches", "misfits"))
def test_json_patch_that_does_not_fit(operation: dict[str, Any], cause: str) -> None:
    with pytest.raises(StatusFailure) as refused:
        patches.json_patch({"a": 1, "c": []}, [operation])
    assert refused.value.code == 422
    assert cause in str(refused.value)
