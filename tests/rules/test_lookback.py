"""Over how much of the past queries look."""

import pytest

from adapter.rules.lookback import lookback_of


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ('sum(rate(x{a="[5m]"}[2m])) by (pod)', 120.0),
        ("x", 0.0),
        ("max_over_time(rate(x[1m])[5m:15s])", 360.0),
        ("max_over_time(rate(x[1m])[5m:1m] offset 10m)", 960.0),
        ("rate(a[1m]) / rate(b[3m])", 180.0),
        ("sum(x offset 1m)", 60.0),
        ("-x", 0.0),
        ("(x)", 0.0),
        ("vector(1)", 0.0),
        ("job:x:rate5m", None),
        ("rate(job:x:sum[1m])", None),
        ("max_over_time(job:x:sum[5m:])", None),
        ("x / job:x:rate5m", None),
        ("((", None),
        ('sum({__name__="x"})', 0.0),
        ('sum({__name__="job:x:rate5m"})', None),
        ('sum({__name__=~"job:.*"})', None),
        ('sum({__name__=~"x|y",a="b"})', None),
        ('sum({a="b"})', None),
    ],
)
def test_lookback(query: str, seconds: float | None) -> None:
    assert lookback_of(query) == seconds
