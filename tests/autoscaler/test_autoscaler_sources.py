from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.autoscaler.autoscaler_sources import AutoscalerFiles, FileContents


def _document(name: str, kind: str = "FastPathAutoscaler", **spec: Any) -> dict[str, Any]:
    version = "fastpath.io/v1alpha1" if kind == "FastPathAutoscaler" else "autoscaling/v2"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, "maxReplicas": 5} | spec,
    }


def _write(path: Path, *documents: Any) -> None:
    """Replace a file as a ConfigMap's is: by another one under its name."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(yaml.safe_dump_all(documents))
    beside.rename(path)


def _names(read: FileContents | None) -> list[str]:
    assert read is not None
    return [f"{each.metadata.namespace}/{each.metadata.name}" for each in read.autoscalers]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _write(tmp_path / "a.yaml", _document("one"), _document("two", "HorizontalPodAutoscaler"))
    _write(tmp_path / "b.json", {"kind": "List", "items": [_document("three")]})
    (tmp_path / "notes.txt").write_text("no autoscaler")
    return tmp_path


def test_both_kinds_lists_and_folders(folder: Path) -> None:
    read = AutoscalerFiles(str(folder), "shop").read()
    assert _names(read) == ["shop/one", "shop/two", "shop/three"]
    assert read.faults == ()
    assert {each.kind for each in read.autoscalers} == {"FastPathAutoscaler"}


def test_a_change_is_seen_once(folder: Path) -> None:
    files = AutoscalerFiles(str(folder), "shop")
    files.read()
    assert files.poll() is None
    _write(folder / "b.json", _document("three", maxReplicas=9))
    read = files.poll()
    assert _names(read) == ["shop/one", "shop/two", "shop/three"]
    assert read is not None
    assert read.autoscalers[2].spec.max_replicas == 9
    assert files.poll() is None


def test_files_come_and_go(folder: Path) -> None:
    files = AutoscalerFiles(str(folder), "shop")
    files.read()
    (folder / "a.yaml").unlink()
    assert _names(files.poll()) == ["shop/three"]
    _write(folder / "c.yml", _document("four"))
    assert _names(files.poll()) == ["shop/three", "shop/four"]
    for path in folder.iterdir():
        path.unlink()
    assert files.poll() == FileContents((), ())


def test_a_wrong_file_stays_as_it_was_and_the_others_change(folder: Path) -> None:
    files = AutoscalerFiles(str(folder), "shop")
    before = files.read()
    _write(
        folder / "a.yaml", _document("one", maxReplicas=0), _document("two", syncPeriod="1h", maxReplica=1)
    )
    _write(folder / "b.json", _document("three", maxReplicas=9))
    read = files.poll()
    assert read is not None
    assert read.autoscalers[:2] == before.autoscalers[:2]
    assert read.autoscalers[2].spec.max_replicas == 9
    assert [str(fault).removeprefix(f"{folder}/") for fault in read.faults] == [
        "a.yaml:6: spec.maxReplicas: Invalid value: 0: must be greater than 0",
        "a.yaml:6: spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
        "a.yaml:17: spec.maxReplica: 1: unknown field, did you mean maxReplicas?",
        'a.yaml:23: spec.syncPeriod: Invalid value: "1h0m0s": must be from 100ms to 1m0s',
    ]
    assert files.poll() is None
    _write(folder / "a.yaml", _document("one"))
    again = files.poll()
    assert (_names(again), again and again.faults) == (["shop/one", "shop/three"], ())


def test_a_wrong_file_at_the_start_gives_nothing(folder: Path) -> None:
    _write(folder / "b.json", {"kind": "List", "items": [_document("three"), {"kind": "Pod"}]})
    read = AutoscalerFiles(str(folder), "shop").read()
    assert _names(read) == ["shop/one", "shop/two"]
    (fault,) = read.faults
    assert (fault.path, fault.value, fault.line) == ("items[1].kind", '"Pod"', 12)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_half_written(folder: Path, text: str) -> None:
    files = AutoscalerFiles(str(folder), "shop")
    files.read()
    (folder / "b.json").write_text(text)
    read = files.poll()
    assert _names(read) == ["shop/one", "shop/two", "shop/three"]
    assert read is not None
    assert [fault.expected for fault in read.faults] == [
        "expected an autoscaler; delete the file to remove its autoscalers"
    ]


@pytest.mark.parametrize("content", [b"\xff", b"a: [", b"x: &a [*a]"])
def test_what_cannot_be_read_is_a_fault(folder: Path, content: bytes) -> None:
    (folder / "b.json").write_bytes(content)
    read = AutoscalerFiles(str(folder), "shop").read()
    assert _names(read) == ["shop/one", "shop/two"]
    assert len(read.faults) == 1
    assert "b.json" in str(read.faults[0])


@pytest.mark.parametrize("kind", ["FastPathAutoscaler", "HorizontalPodAutoscaler"])
def test_the_metric_of_boost_is_refused(folder: Path, kind: str) -> None:
    target = {"type": "AverageValue", "averageValue": "1"}
    metric = {"name": "fastpath_replicas", "selector": {"matchLabels": {"autoscaler": "four"}}}
    _write(
        folder / "c.yaml",
        _document(
            "four", kind, metrics=[{"type": "External", "external": {"metric": metric, "target": target}}]
        ),
    )
    read = AutoscalerFiles(str(folder), "shop").read()
    assert _names(read) == ["shop/one", "shop/two", "shop/three"]
    [fault] = read.faults
    assert fault.path == "spec.metrics[0].external.metric.name"
    assert "remove this metric" in str(fault)


def test_a_folder_that_is_gone_takes_nothing_away(folder: Path) -> None:
    files = AutoscalerFiles(str(folder / "in"), "shop")
    (folder / "in").mkdir()
    _write(folder / "in" / "a.yaml", _document("one"))
    files.read()
    (folder / "in").rename(folder / "out")
    read = files.poll()
    assert _names(read) == ["shop/one"]
    assert read is not None
    assert [str(fault) for fault in read.faults] == [
        f"--autoscalers: {folder}/in: expected a readable folder: No such file or directory"
    ]
    assert files.poll() is None
    (folder / "out").rename(folder / "in")
    assert files.poll() == FileContents(read.autoscalers, ())


def test_of_two_with_one_name_the_first_counts(folder: Path) -> None:
    _write(folder / "c.yaml", _document("one", maxReplicas=9), _document("four"))
    read = AutoscalerFiles(str(folder), "shop").read()
    assert _names(read) == ["shop/one", "shop/two", "shop/three", "shop/four"]
    assert read.autoscalers[0].spec.max_replicas == 5
    assert [str(fault) for fault in read.faults] == [
        (
            f"{folder}/c.yaml: metadata.name: shop/one: this name is already used in {folder}/a.yaml; that "
            "autoscaler is used"
        )
    ]


def test_a_config_map_is_swapped_by_a_link(tmp_path: Path) -> None:
    for name, most in (("v1", 5), ("v2", 6)):
        (tmp_path / name).mkdir()
        _write(tmp_path / name / "a.yaml", _document("one", maxReplicas=most))
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "..data").symlink_to(tmp_path / "v1")
    (tmp_path / "mount" / "a.yaml").symlink_to(Path("..data") / "a.yaml")
    files = AutoscalerFiles(str(tmp_path / "mount"), "shop")
    assert files.read().autoscalers[0].spec.max_replicas == 5
    (tmp_path / "mount" / "..new").symlink_to(tmp_path / "v2")
    (tmp_path / "mount" / "..new").rename(tmp_path / "mount" / "..data")
    read = files.poll()
    assert read is not None
    assert read.autoscalers[0].spec.max_replicas == 6
