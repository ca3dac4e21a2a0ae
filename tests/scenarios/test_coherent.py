"""New pods that share a load: no step asks for more than is needed, boosted and with the fast-scaler.

The cluster is the sandbox, without the HPA controller; `tests/e2e/test_coherent.py` has a real one.
"""

from pathlib import Path

import pytest

from tests.support import boosting, sharing
from tests.support.boosting import NAMESPACE
from tests.support.nativechain import serving
from tests.support.sharing import NEEDED
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

COUNT = 6
WAIT = 30.0


async def test_no_step_asks_for_more_than_is_needed(tmp_path: Path) -> None:
    async with boosting.running(sharing.random_startup(17)) as world:
        world.interval = "1s"
        found = sharing.workloads(COUNT)
        for each in found:
            world.show(each)
            for document in sharing.objects(each, NAMESPACE):
                world.cluster.create(document)
        async with serving(world, tmp_path, "--scaler", "--local-address="):
            await until(lambda: all(world.scrapes[each.name] > 2 for each in found), WAIT)
            start = world.begin()
            await until(lambda: all(each.ready >= NEEDED for each in found), WAIT)
            scaled = sharing.judge(world.audit, list(world.workloads), start)
    assert [each for each in scaled if each.most > NEEDED] == []
