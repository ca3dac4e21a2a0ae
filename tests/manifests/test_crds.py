"""The CustomResourceDefinitions in manifests/chart/files/crd have the form that API servers ask for."""

from types import ModuleType
from typing import Any, NamedTuple

import pytest
import yaml

from adapter.bounds.schedule import documents
from adapter.model.autoscaling import fastpath_autoscaler
from scripts.generate import crd, crd_parts, crd_schedules
from tests.manifests import structural

JSON = dict[str, Any]


class DefinedKind(NamedTuple):
    """A definition in the manifests, the module that makes it, and what is expected of it."""

    module: ModuleType
    names: tuple[str, str, str]
    columns: str
    longest: int
    most: int
    """The greatest length of texts and lists that rules read: the cost of a rule is estimated from it."""

    @property
    def definition(self) -> JSON:
        read: JSON = yaml.safe_load(self.module.PATH.read_text())
        return read

    @property
    def version(self) -> JSON:
        (version,) = self.definition["spec"]["versions"]
        return dict(version)

    @property
    def schema(self) -> JSON:
        return dict(self.version["schema"]["openAPIV3Schema"])


KINDS = {
    "FastPathAutoscaler": DefinedKind(
        crd,
        (fastpath_autoscaler.KIND, fastpath_autoscaler.PLURAL, "fpa"),
        "Kind Reference Targets MinPods MaxPods Replicas Able Active Mode Age",
        320,
        fastpath_autoscaler.MOST_METRICS,
    ),
    "FastPathSchedule": DefinedKind(
        crd_schedules,
        (documents.KIND, documents.PLURAL, "fps"),
        "Active Min Max Next Applied Age",
        documents.MOST_CRON,
        documents.MOST_WINDOWS,
    ),
}


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_the_file_is_up_to_date(kind: DefinedKind) -> None:
    made = crd_parts.render(kind.module.definition())
    assert kind.module.PATH.read_text() == made, "run python -m scripts.generate.crd"


def test_the_schema_is_structural(kind: DefinedKind) -> None:
    assert structural.faults_of_form(kind.schema) == []


def test_names_of_the_kind(kind: DefinedKind) -> None:
    spec, version = kind.definition["spec"], kind.version
    names = spec["names"]
    assert kind.definition["metadata"]["name"] == f"{names['plural']}.{spec['group']}"
    assert f"{spec['group']}/{version['name']}" == fastpath_autoscaler.API_VERSION
    assert (names["kind"], names["plural"], *names["shortNames"]) == kind.names
    assert (spec["scope"], version["served"], version["storage"]) == ("Namespaced", True, True)
    assert version["subresources"] == {"status": {}}


def test_every_field_of_a_spec_has_a_description(kind: DefinedKind) -> None:
    for path, node in structural.nodes(kind.schema["properties"]["spec"]):
        if not path.endswith("{}") and "values[]" not in path:
            assert node.get("description"), f"{path}: describe it in {kind.module.__name__}"


def test_descriptions_follow_the_api_conventions(kind: DefinedKind) -> None:
    """A description begins with the name of its field, ends as a sentence, and says the default."""
    assert structural.faults_of_descriptions(kind.schema) == []


def test_columns_show_fields_of_the_schema(kind: DefinedKind) -> None:
    assert structural.faults_of_columns(kind.version) == []
    assert " ".join(structural.shown_columns(kind.version)) == kind.columns


def test_rules_have_messages_that_stand_alone(kind: DefinedKind) -> None:
    rules = [
        rule for _, node in structural.nodes(kind.schema) for rule in node.get("x-kubernetes-validations", ())
    ]
    assert len(rules) > 20
    for rule in rules:
        assert rule.keys() == {"rule", "message"}  # what 1.27 knows
        assert rule["message"][0].islower()
        assert "\n" not in rule["message"]


def test_rules_read_only_bounded_fields(kind: DefinedKind) -> None:
    for path, node in structural.nodes(kind.schema["properties"]["spec"]):
        if node.get("type") == "string" and "x-kubernetes-validations" in node:
            assert node["maxLength"] <= kind.longest, path
        if "items" in node and any(
            "x-kubernetes-validations" in below for _, below in structural.nodes(node["items"])
        ):
            most = {"forecast.holidays": 1000, "except": documents.MOST_EXCEPTIONS}
            assert node["maxItems"] <= most.get(path, kind.most), path
