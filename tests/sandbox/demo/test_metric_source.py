"""Several sets of series behind the sandbox's Prometheus; the demo's test covers a real one."""

from fastpath_sandbox.demo.metric_source import _JoinedSeries
from fastpath_sandbox.prometheus.series import Point, Series, SeriesSet


def test_each_set_keeps_its_interval() -> None:
    quick, slow = (SeriesSet([Series("load", {"set": name}, lambda now: now)], interval=interval)
                   for name, interval in (("quick", 1.0), ("slow", 15.0)))  # fmt: skip
    joined = _JoinedSeries((quick, slow))
    by_set = {dict(series.labels)["set"]: series for series in joined.named("load")}
    assert list(joined) == [*quick, *slow]

    assert joined.interval == 1.0
    assert joined.latest(by_set["quick"], 29.5, 300.0) == Point(29.0, 29.0)
    assert joined.latest(by_set["slow"], 29.5, 300.0) == Point(15.0, 15.0)
    assert [point.time for point in joined.samples(by_set["slow"], 0.0, 40.0)] == [0.0, 15.0, 30.0]
    assert not joined.has_samples(by_set["slow"], 16.0, 29.0)
    assert joined.has_samples(by_set["quick"], 16.0, 29.0)
