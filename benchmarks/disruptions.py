"""An upgrade of Fastpath and the way back, and the death of all its pods, on a real control plane.

`python -m benchmarks.disruptions --command=OLD --sources=DIR` upgrades. OLD is the command `fastpath` of
another version, in a virtual environment of its own, and DIR has the folder `manifests` of that version.
Without these all pods die, for 10 s and for a minute. `tests.e2e.installation` says what runs.
"""

import asyncio
from pathlib import Path

from benchmarks import common, plane
from benchmarks.common import Goal, Report
from benchmarks.stage import Stage
from tests.e2e import installation
from tests.e2e.fleet import Sizes
from tests.world.processes import THIS, Version
from tests.world.world import opened


async def run(stage: Stage, sizes: Sizes, boosted: int, versions: list[Version]) -> dict[str, float]:
    async with (
        plane.opened(stage, plane.find_assets()) as on,
        opened(on.cluster) as world,
        installation.opened(world, on.plane, sizes, boosted, versions[0]) as installed,
    ):
        figures = await (installed.upgrade(*versions) if versions[1:] else installed.die(10.0, 60.0))
        await installed.scalers.follow()
        for kind, faults in installed.faults().items():
            print(*(f"{kind}: {fault}" for fault in faults[:5]), sep="\n")
            figures[kind] = len(faults)
        return figures | installed.totals()


def main() -> None:
    sizes = common.parse_sizes(__doc__, command="", sources="", autoscalers=24, namespaces=12, boosted=6)
    versions = [Version((sizes.command,), Path(sizes.sources).resolve()), THIS] if sizes.command else [THIS]
    fleet = Sizes(sizes.autoscalers, sizes.namespaces, 15, 10, 2, step=6, window=8, freeze=0, quiet=4)
    goals = {kind: Goal(kind.replace("_", " "), 0, "") for kind in installation.FAULTS}
    report = Report("disruptions", vars(sizes), goals)
    with Stage() as stage:
        report.add(**asyncio.run(run(stage, fleet, sizes.boosted, versions)))
    report.show()


if __name__ == "__main__":
    main()
