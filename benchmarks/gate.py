"""How often a forecast may act on noise: `python -m benchmarks.gate --seeds 200`.

Each seed gives two weeks of white noise, of red noise and of bursts at random times. Nothing in their past
says what comes, so a verdict that lets a candidate act is a false acceptance.
"""

import itertools
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks import common
from fastpath_forecast import judge
from tests.forecast.demands import NOISE, case_for


def chosen(job: tuple[str, int]) -> tuple[str, str]:
    """Return a kind of noise, and the candidate that may act on it, "" for none."""
    name, seed = job
    case = case_for(NOISE[name](np.random.default_rng(seed)))
    return name, judge.judge(case, judge.build_demand(case))[0].chosen


def main() -> None:
    sizes = common.parse_sizes("Forecasts on noise.", seeds=200)
    jobs = list(itertools.product(NOISE, range(int(sizes.seeds))))
    acting = {name: Counter[str]() for name in NOISE}
    with ProcessPoolExecutor() as pool:
        for name, candidate in pool.map(chosen, jobs):
            acting[name].update([candidate] if candidate else [])
    for name, counts in acting.items():
        listed = ", ".join(f"{candidate} {count}" for candidate, count in counts.items()) or "none"
        share = counts.total() / sizes.seeds
        print(f"{name}: {share:.1%} of {sizes.seeds:.0f} verdicts act ({listed})")


if __name__ == "__main__":
    main()
