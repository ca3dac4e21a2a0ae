"""The loop, as data: what is decided, written and told while targets, metrics, caches and clocks change.

`scripts/` has stories of the autoscaler web, whose external metric `queue` asks for a count. Below each line
is what was written and told since the one before. After `> ` something happens:

- `want N` sets the queue, where `none` is no value and `not-yet` no answer. `put NAME COUNT FIELD=VALUE ...`
  puts an autoscaler with a spec, and a target of so many Ready pods, `spec NAME ...` the autoscaler alone,
  `hpa COUNT ...` a boosted HPA. `window`, `up`, `down` and `target` are short for a part of a spec, `shown`,
  `fault` and `digest` are of the boost.
- `step SECONDS` lets time pass and decides once, `run COUNT SECONDS` so often, `wait SECONDS` not at all.
  After `lead` another process is the owner: it knows what is stored in the API.
- `set TARGET COUNT WRITER` scales as another client; the caches have not seen it if it is `untold`, until
  `tell`. `pods` sets the pods of a target, `share` what pods show.
- `hold` and `free` are for the `turn` and the `answer` of a write, the `floor` that is published before, and
  the `costs` of pods. `fail`, `lose`, `refuse` (floors) and `deny` (costs) say how these end.
- `when CALL NUMBER LINE` has a line happen at a `slot`, a `put` or a `get` of a write, `answer CALL CODE ...`
  has the next ones fail, and `spoil OWNER FUNCTION` has a defect.
- Other words say what is known then; `shown` is a part of the document of the autoscaler.

`scripts/test tests/autoscaler/test_scripts.py --update` writes it.
"""

from pathlib import Path

import pytest

from tests.autoscaler.loop_script import LoopScript
from tests.support.scripts import Scripts

NAMES = (
    *("boost", "calls", "defects", "documents", "idle", "metrics"),
    *("owners", "pending", "schedules", "targets", "writes"),
)
FILES = {name: Scripts(Path(__file__).parent / "scripts" / name) for name in NAMES}
STORIES = [(name, title) for name, stories in FILES.items() for title in stories.titles]


@pytest.mark.parametrize(("name", "title"), STORIES)
async def test_script(name: str, title: str, script: LoopScript, pytestconfig: pytest.Config) -> None:
    await FILES[name].play(title, script, pytestconfig, script.news)
