"""The field of a forecast and its annotation: what each means, what is refused, and the sentences."""

import contextlib
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InputError
from adapter.model.autoscaling import boost, documents, fastpath_autoscaler, limits
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling.forecast import ANNOTATION, DAY, ForecastSettings, ForecastSpec
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, to_plain
from adapter.model.objects.api_objects import Metadata
from fastpath_tools.convert import conversion
from tests.support.answers import answers
from tests.support.scaling import cpu_metric, document, external_metric, hpa

FULL = ForecastSpec(
    "Floor", "28d", "90s", "10%", "30%", "Europe/Berlin", ("2026-12-25", "2026-12-26", "2026-12-25")
)
WRITTEN = (
    "mode=Floor,history=28d,horizon=90s,maxExtra=10%,minGain=30%,timeZone=Europe/Berlin,"
    "holidays=2026-12-25 2026-12-26 2026-12-25"
)
HISTORY = "must be from 7d to 35d, in days or hours such as 14d or 336h"
ZONE = "must be a time zone of the tz database such as Europe/Berlin"


def test_an_empty_field_has_the_defaults_of_the_settings() -> None:
    assert forecast_spec.settings_of(ForecastSpec()) == ForecastSettings()


def test_meanings_of_fields() -> None:
    assert forecast_spec.settings_of(FULL) == ForecastSettings(
        mode="Floor",
        history=28 * DAY,
        horizon=90,
        max_extra=0.1,
        min_gain=0.3,
        zone=ZoneInfo("Europe/Berlin"),
        holidays=frozenset({date(2026, 12, 25), date(2026, 12, 26)}),
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("168h", 7 * DAY), ("7d", 7 * DAY), ("840h", 35 * DAY), ("35d", 35 * DAY)]
)
def test_histories(text: str, seconds: int) -> None:
    spec = ForecastSpec(history=text)
    assert list(limits.check(spec, forecast_spec.PATH)) == []
    assert forecast_spec.settings_of(spec).history == seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [("Auto", None), ("1s", 1), ("1.5s", 2), ("1m30s", 90), ("1h", 3600)]
)
def test_horizons(text: str, seconds: int | None) -> None:
    spec = ForecastSpec(horizon=text)
    assert list(limits.check(spec, forecast_spec.PATH)) == []
    assert forecast_spec.settings_of(spec).horizon == seconds


MANY = ("holidays", ["2026-12-25"] * 1001, "holidays: Too many: 1001: must have at most 1000 items")


@pytest.mark.parametrize(("field", "value", "said"), [*answers("autoscaling/forecast", "refused"), MANY])
def test_refused_values(field: str, value: Any, said: str) -> None:
    (violation,) = limits.check(ForecastSpec(**{field: value}), forecast_spec.PATH)
    assert str(violation) == f"spec.forecast.{said}"


@pytest.mark.parametrize("zone", ["", "Europe/Bonn", "localtime", "right/UTC", "../UTC", "/".join("A" * 300)])
def test_a_zone_that_there_is_not_is_a_fault_of_a_file_and_stops_no_scaling(zone: str) -> None:
    spec = ForecastSpec(time_zone=zone)
    assert list(limits.check(spec, forecast_spec.PATH)) == []
    said = f'spec.forecast.timeZone: Invalid value: "{zone}": {ZONE}'
    assert [str(each) for each in forecast_spec.check_zone(spec)] == [said]
    with pytest.raises(ValueError, match="must be a time zone") as caught:
        forecast_spec.settings_of(spec)
    assert str(caught.value) == said


# -- the annotation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("Floor", ForecastSpec("Floor")),
        (" Advise ", ForecastSpec()),
        ("mode=Floor", ForecastSpec("Floor")),
        ("history=21d, maxExtra = 5%", ForecastSpec(history="21d", max_extra="5%")),
        (WRITTEN, FULL),
    ],
)
def test_the_annotation_is_read(text: str, spec: ForecastSpec) -> None:
    assert forecast_spec.read_annotation(text) == spec


LONG = ("x" * 20_000, "20000 characters: expected at most 16384")


@pytest.mark.parametrize(("text", "said"), [*answers("autoscaling/forecast", "faulty annotations"), LONG])
def test_a_faulty_annotation_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"expected|must be|supported") as caught:
        forecast_spec.read_annotation(text)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (ForecastSpec(), "Advise"),
        (ForecastSpec("Floor"), "Floor"),
        (ForecastSpec(history="21d"), "mode=Advise,history=21d"),
        (ForecastSpec(holidays=()), "Advise"),
        (FULL, WRITTEN),
    ],
)
def test_written_values(spec: ForecastSpec, text: str) -> None:
    assert forecast_spec.write_annotation(spec) == text


SPECS = st.builds(
    ForecastSpec,
    st.sampled_from(["Advise", "Floor"]),
    st.sampled_from(["14d", "7d", "200h"]),
    st.sampled_from(["Auto", "1m30s"]),
    st.integers(1, 100).map("{}%".format),
    st.integers(1, 100).map("{}%".format),
    st.sampled_from(["UTC", "Asia/Kolkata"]),
    st.none() | st.lists(st.dates().map(str), min_size=1, max_size=1000).map(tuple),
)


@given(SPECS)
def test_a_written_spec_is_read_again(spec: ForecastSpec) -> None:
    assert forecast_spec.read_annotation(forecast_spec.write_annotation(spec)) == spec


@given(st.text() | st.lists(st.text("=%dFlormode,history0123456789 ")).map(",".join))
def test_any_text_is_a_field_or_a_sentence(text: str) -> None:
    with contextlib.suppress(ValueError):
        spec = forecast_spec.read_annotation(text)
        assert list(limits.check(spec, forecast_spec.PATH)) == []
        assert forecast_spec.settings_of(spec).mode == spec.mode


# -- on autoscalers ------------------------------------------------------------------------------------------


def _boosted(text: str | None, mode: str | None = "boost") -> boost.BoostedHPA | None:
    plain = hpa([cpu_metric(), external_metric("fastpath_replicas", averageValue="1")])
    annotations = {boost.MODE_ANNOTATION: mode, ANNOTATION: text}
    given_ = {name: value for name, value in annotations.items() if value is not None}
    meta = Metadata(plain.metadata.name, plain.metadata.namespace, annotations=given_)
    return boost.read_boosted(HorizontalPodAutoscaler(metadata=meta, spec=plain.spec))


def test_an_annotation_becomes_the_field_of_a_boosted_hpa() -> None:
    found = _boosted(WRITTEN)
    assert found is not None
    assert (found.autoscaler.spec.forecast, found.annotations.faults) == (FULL, ())
    assert fastpath_autoscaler.validate(found.autoscaler) == []
    assert _boosted(WRITTEN, mode=None) is None


def test_a_faulty_annotation_is_a_fault_and_counts_as_absent() -> None:
    found = _boosted("history=3d")
    assert found is not None
    assert found.autoscaler.spec.forecast is None
    assert found.annotations.faults == (f'annotation fastpath.io/forecast: history "3d": {HISTORY}',)


def test_a_digest_changes_with_what_the_annotation_says_and_not_with_how() -> None:
    """Without an annotation it is what it was before there were forecasts: a demotion outlasts an update."""
    texts = [None, "Floor", "Advise", "history=21d", "history=22d"]
    found = [_boosted(text) for text in texts]
    digests = [each.digest for each in found if each is not None]
    assert len(set(digests)) == len(texts)
    assert digests[0] == "12984c27291f0973"
    same = _boosted("history=21d,mode=Advise")
    assert same is not None
    assert same.digest == digests[3]


def _document(**forecast: Any) -> dict[str, Any]:
    meta = {"annotations": {ANNOTATION: "Floor", "team": "x"}}
    return document([external_metric(averageValue="10")], meta, minReplicas=0, forecast=forecast)


def test_the_field_of_an_autoscaler_that_may_go_to_zero() -> None:
    read = documents.read_document(_document(mode="Floor", holidays=["2026-12-25"]))
    assert read.spec.forecast == ForecastSpec("Floor", holidays=("2026-12-25",))
    plain = to_plain(read)
    assert plain["spec"]["forecast"] == {"mode": "Floor", "holidays": ("2026-12-25",)}
    assert documents.read_document(_document()).spec.forecast == ForecastSpec()


def test_a_file_names_the_fields_that_are_wrong() -> None:
    with pytest.raises(InputError) as caught:
        documents.read_document(_document(history="3d", timeZone="Europe/Bonn", maxextra="1%"))
    assert [str(fault) for fault in caught.value.faults] == [
        'spec.forecast.maxextra: "1%": unknown field, did you mean maxExtra?',
        f'spec.forecast.history: Invalid value: "3d": {HISTORY}',
        f'spec.forecast.timeZone: Invalid value: "Europe/Bonn": {ZONE}',
    ]


def test_a_number_in_place_of_a_share_is_named() -> None:
    with pytest.raises(InputError) as caught:
        documents.read_document(_document(maxExtra=15))
    assert str(caught.value) == "spec.forecast.maxExtra: 15: expected text, got an integer"


def test_the_other_kind_does_not_have_it() -> None:
    made = conversion.to_native(_document(mode="Floor"))
    assert "forecast" not in made.document["spec"]
    assert made.document["metadata"]["annotations"] == {"team": "x"}
    left_out = [note for note in made.notes if note.startswith("left out")]
    assert left_out == [
        "left out: annotation fastpath.io/forecast",
        'left out, a HorizontalPodAutoscaler does not have it: spec.forecast: {"mode": "Floor"}',
    ]
