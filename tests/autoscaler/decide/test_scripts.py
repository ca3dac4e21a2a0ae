"""Decisions over time, as data: fallbacks, waits for idle pods, bounds, values that are lost.

`scripts/` has stories of one autoscaler, decided as the loop decides it: what is decided is written at once.
Below a decision are its events, but for those about metrics. After `> ` something happens:

- `scaler COUNT FIELD=VALUE ...` begins with a target of so many Ready pods. `after SECONDS WISH ...` decides
  so long after the last decision, `at SECONDS WISH ...` after the beginning, `counts WISH SECONDS ...` at
  these times. A wish is a count that the queue asks for, `none`, or values of pods as `0-4=15,5-9=5`;
  `idle=2` is what else is seen.
- `bounds NAME FIELD=VALUE ...` are those of schedules and forecasts from then on. `spec` changes the spec,
  `mode` and `fallback` what the loop takes from it.
- `zero` is one of the own or of another writer. `pods` are those that are known, `start` is that of another
  leader.
- Other words say what is known then.

`scripts/test tests/autoscaler/decide/test_scripts.py --update` writes it.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from adapter.autoscaler.decide import foresight
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.foresight import BoundsFrom
from adapter.autoscaler.decide.guards.boost import Boost, Boosting
from adapter.autoscaler.decide.guards.conflicts import OWN, ConflictState
from adapter.autoscaler.decide.observation import OptionState
from adapter.autoscaler.decide.sync import Decision
from adapter.bounds.forecast.verdict import UNJUDGED, Readiness
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.autoscaling.floor import Floor
from adapter.model.timestamps import SECOND, FineInstant
from tests.autoscaler.decide.synced import SyncedScaler, Wish, condition
from tests.autoscaler.specs import read_spec
from tests.support.controller import LIVE, QUEUE
from tests.support.scaling import NOW, autoscaler, pod
from tests.support.scripts import Scripts

NAMES = ("bounds", "draining", "fallback", "forecasts", "foresight", "lost-values", "statuses")
FILES = {name: Scripts(Path(__file__).parent / "scripts" / name) for name in NAMES}
STORIES = [(name, title) for name, stories in FILES.items() for title in stories.titles]
ABOUT_METRICS = re.compile(r"\w+ (SuccessfulRescale|FailedGet\w+Metric|FailedComputeMetricsReplicas):")
BOUNDS = {
    "no": None,
    "office": Bounds(20, None, ("shop/office business",), until=NOW // SECOND + 3600),
    "evening": Bounds(10, None, ("shop/office evening",)),
    "quiet": Bounds(None, 6, ("shop/office quiet",)),
    "soon": Bounds(20, None, (), ("shop/office business",)),
    "many": Bounds(20, None, tuple(f"shop/office {number}" for number in range(500))),
    "forecast": Bounds(),
}


def read_names(places: str) -> list[str]:
    """Return the names of the pods from the first to the last number."""
    first, _, last = places.partition("-")
    return [f"web-{number}" for number in range(int(first), int(last or first) + 1)]


def read_wish(text: str) -> Wish:
    """Return a count, None, or what pods show."""
    if "=" not in text:
        return None if text == "none" else int(text)
    values: dict[str, int] = {}
    for part in text.split(","):
        places, _, value = part.partition("=")
        values |= dict.fromkeys(read_names(places), round(float(value) * 1000))
    return values


class DecideScript:
    """What a line of a script does, and what is decided then."""

    def __init__(self) -> None:
        self.subject = SyncedScaler()
        self._bounds: Bounds | None = None
        self._told = 0

    # -- what happens --------------------------------------------------------------------------------------

    def scaler(self, replicas: str, *words: str) -> None:
        spec = read_spec(words)
        metrics, legacy = spec.pop("metrics", QUEUE), spec.pop("legacy", False)
        self.subject = SyncedScaler(int(replicas), metrics, legacy=legacy, **spec)

    def spec(self, *words: str) -> None:
        spec = read_spec(words)
        self.subject.spec = autoscaler(spec.pop("metrics", QUEUE), LIVE, **spec)

    def mode(self, name: str) -> None:
        self.subject.constrain(mode=name)

    def fallback(self, _: str) -> None:
        """Take the fallback out of the spec."""
        self.subject.constrain(fallback=None)

    def bounds(self, name: str, *words: str) -> None:
        found, more = BOUNDS[name], read_spec(words)
        self._bounds = found if found is None else msgspec.structs.replace(found, **more)

    def after(self, seconds: str, *words: str) -> list[str]:
        return self._decide(float(seconds), words)

    def at(self, seconds: str, *words: str) -> list[str]:
        self.subject.now = NOW + round(float(seconds) * SECOND)
        return self._decide(0, words)

    def _decide(self, after: float, words: Iterable[str]) -> list[str]:
        wishes = [read_wish(word) for word in words if not word[0].isalpha() or word == "none"]
        facts = dict(word.split("=") for word in words if word[0].isalpha() and word != "none")
        seen = {name: yaml.safe_load(text) for name, text in facts.items()}
        if "set_by" in seen:
            seen["set_by"] *= SECOND
        return self.decided(*wishes, after=after, **seen)

    def decided(self, *wishes: Wish, after: float = 0, **seen: Any) -> list[str]:
        wishes = wishes or (self.subject.replicas,)
        made = self.subject.decide(*wishes, bounds=self._bounds, after=after, **seen)
        return [f"{made.replicas}, {made.reason}" if made.rescale else str(made.replicas), *self._news()]

    def follow(self, seconds: str, *words: str) -> list[str]:
        """Decide in each of so many seconds, and return the last count."""
        said = [self.after("1", *words) for _ in range(int(seconds))]
        return [said[-1][0], *(text for _, *told in said for text in told)]

    def counts(self, wish: str, *seconds: str) -> list[str]:
        said = [self.at(each, wish) for each in seconds]
        return [
            " ".join(count.partition(",")[0] for count, *_ in said),
            *(each for _, *news in said for each in news),
        ]

    def _news(self) -> list[str]:
        news, self._told = self.subject.told[self._told :], len(self.subject.told)
        return [text for text in news if not ABOUT_METRICS.match(text)]

    def ready(self, state: str, reason: str = "", *message: str) -> None:
        """Have a verdict on the forecast, `no` forecast, or one that is not judged yet."""
        known = Readiness(holds=state == "holds", reason=reason, message=" ".join(message))
        readiness = {"no": None, "unjudged": UNJUDGED}.get(state, known)
        self.subject.constrain(readiness=readiness)

    def boost(self) -> None:
        """Have an HPA that is boosted."""
        self.subject.constrain(mode=BOOST, boost=Boost(mode=BOOST))

    def floor(self, replicas: str, seconds: str) -> None:
        """Have a floor for so many seconds."""
        until = FineInstant(self.subject.now + int(seconds) * SECOND)
        self.subject.change(boost=Boosting(floor=Floor(replicas=int(replicas), until=until)))

    def pause(self, seconds: str) -> None:
        """Have a pause after reversals."""
        until = self.subject.now + int(seconds) * SECOND
        known = ConflictState(known=self.subject.replicas, paused_until=until, paused_by="argocd")
        self.subject.change(conflicts=known)

    def generation(self, number: str) -> None:
        """Have another writer set the observed generation of the status."""
        status = msgspec.structs.replace(self.subject.memory.status, observed_generation=int(number))
        self.subject.change(status=status)

    def fast_usage(self, state: str, reason: str = "", *message: str) -> list[str]:
        """Decide with a state of the pods' own usage, or with no rule for it."""
        known = OptionState(holds=state == "holds", reason=reason, message=" ".join(message))
        return self.decided(fast_usage=None if state == "no" else known)

    def zero(self, whose: str) -> None:
        is_own = whose == "own"
        self.subject.replicas, self.subject.manager = 0, OWN if is_own else "kubectl"
        self.subject.change(conflicts=ConflictState(known=0, own_zero=is_own))

    def replicas(self, count: str) -> None:
        self.subject.replicas = int(count)

    def pods(self, *listed: str) -> None:
        """Have pods that are all Ready, those of `NUMBERS:FIELD=VALUE` but for that."""
        found = []
        for text in listed:
            places, _, fact = text.partition(":")
            first, _, last = places.partition("-")
            name, _, value = fact.partition("=")
            facts: dict[str, Any] = (
                {name: value if name == "ready" else yaml.safe_load(value)} if fact else {}
            )
            found += [pod(f"web-{number}", **facts) for number in range(int(first), int(last or first) + 1)]
        self.subject.pods = found

    def start(self) -> None:
        """Begin as another leader, which knows the status alone."""
        self.subject.memory, self.subject.last = memories.remember(self.subject.memory.status), None

    # -- what is known -------------------------------------------------------------------------------------

    @property
    def _last(self) -> Decision:
        assert self.subject.last is not None
        return self.subject.last

    def condition(self, kind: str) -> str:
        found = condition(self._last, kind)
        return "none" if found is None else f"{found[0]} {found[1]}: {found[2]}"

    def status(self) -> str:
        changed = "changed" if self._last.status_changed else "as before"
        return f"{self._last.status.desired_replicas}, {changed}"

    def trace(self, name: str = "") -> list[str]:
        """Return the steps of this name, or all."""
        return [step.text() for step in self._last.trace if name in {"", step.name}] or ["none"]

    def recommended(self, seconds: str) -> str:
        """Return the highest recommendation of the last seconds."""
        since = self.subject.now - round(float(seconds) * SECOND)
        return str(self.subject.memory.history.recommendations.highest(0, since))

    def foresee(self, wish: str, *ahead: str) -> str:
        """Return the next change while the metrics stay; `60=office` are bounds that begin."""
        subject, found = self.subject, []
        for each in ahead:
            seconds, _, name = each.partition("=")
            found.append(BoundsFrom(subject.now + int(seconds) * SECOND, BOUNDS[name] or Bounds()))
        seen = subject.observe(read_wish(wish))
        following = foresight.foresee(
            subject.spec, seen, subject.memory, subject.now, subject.constraints, found
        )
        if following is None:
            return "no change"
        return f"{following.replicas} in {(following.at - subject.now) / SECOND:.12g} s"

    def error(self) -> str:
        return self._last.error

    def absence(self) -> str:
        absence = self.subject.memory.absence
        since = "none" if absence.since is None else f"since {(absence.since - NOW) / SECOND:g} s"
        return f"{since}, last good {absence.last_good}, {'active' if absence.active else 'not active'}"

    def draining(self) -> str:
        since = self.subject.memory.draining
        return "no" if since is None else f"since {(since - NOW) / SECOND:g} s"

    def reporting(self) -> list[str]:
        """Return the pods that had values by metric, and those that lack them."""
        found = self.subject.memory.history.reporting.items()
        return [f"{metric}: {' '.join(pods)}" for metric, (pods, _) in found] or ["none"]


@pytest.mark.parametrize(("name", "title"), STORIES)
async def test_script(name: str, title: str, pytestconfig: pytest.Config) -> None:
    await FILES[name].play(title, DecideScript(), pytestconfig)
