"""`fastpath serve --scaler`: the metrics APIs and the scaler in one process, sharing what they read."""

from pathlib import Path

import pytest

from adapter.model.autoscaling import slices
from fastpath_tools import explain
from fastpath_tools.live import scaler_access
from tests.support.adapter import DecodedAnswer
from tests.support.tools import free_port
from tests.world.workloads import HASTY, HOME, NAMESPACE, OWN, UNIT, level
from tests.world.world import World, sandboxed, scaling, serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

LOADS = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/pods/%2A/load"
SHOWN = f"/debug/fastpath/autoscalers/{NAMESPACE}/{OWN}"


async def test_one_process_answers_and_scales(tmp_path: Path, shop: World) -> None:
    shop.fpa(OWN, "pods-scraped", level(2))
    local = f"127.0.0.1:{free_port()}"
    async with serving(shop, tmp_path, "--scaler", f"--local-address={local}") as adapter:
        await shop.run(lambda: shop.is_active(OWN))
        shop.load(OWN, level(5))
        await shop.run(lambda: shop.replicas(OWN) == 5)
        answer = await adapter.wait_for(SHOWN, lambda answer: "written" in str(answer.body["journal"]))
        assert (await adapter.get(f"{SHOWN}-missing")).status == 404
        options, _ = explain.COMMAND.parse([f"{NAMESPACE}/{OWN}", f"--server=http://{local}"])
        told = await scaler_access.fetch(options, options.namespace)
        written = [
            [entry for entry in journal if entry["outcome"] == "written"]
            for journal in (told["journal"], answer.body["journal"])
        ]
        assert written[0] == written[1], "for who may forward ports of the pod"
        assert await adapter.metric_lines("fastpath_ready{") == {'fastpath_ready{command="serve"}': 1.0}


async def test_a_second_scaler_answers_from_its_own_scrapes_and_takes_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus has no values of these pods, and the first scaler owns all slices until the second joins."""
    monkeypatch.setenv("POD_NAMESPACE", HOME)
    space = "mall"
    assert slices.slice_of(space) >= slices.COUNT / 2, "else the first one keeps the slice"
    path, page = LOADS.replace(NAMESPACE, space), SHOWN.replace(NAMESPACE, space)
    async with sandboxed(tmp_path, space) as world:
        web = world.fpa(OWN, "pods-scraped", lambda _: 1.5 * UNIT)
        await world.run(lambda: web.ready == 2)
        world.lose(*web.parts)
        async with scaling(world, tmp_path / "leader", None, *HASTY) as leader:
            await leader.shows("target", page)
            async with serving(world, tmp_path, "--scaler", *HASTY) as follower:
                for pods, value in ((1.5, "7500m"), (1.7, "8500m")):
                    world.load(OWN, lambda _, pods=pods: pods * UNIT)  # type: ignore[misc]  # mypy sees no defaults

                    def has(answer: DecodedAnswer, value: str = value) -> bool:
                        return answer.status == 200 and [*answer.values.values()] == [value] * 2

                    await follower.wait_for(path, has)
                await follower.wait_for(page, lambda answer: answer.status == 200)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], 2, id="names, and the running ones for resource metrics"),
        pytest.param(["--scaler"], 1, id="one cache for these and the scaler"),
    ],
)
async def test_all_pods_are_watched_as_rarely_as_can_be(
    tmp_path: Path, shop: World, arguments: list[str], expected: int
) -> None:
    shop.fpa(OWN, "pods-scraped", lambda _: 1.5 * UNIT)
    metadata = {"name": "job", "namespace": NAMESPACE, "labels": {"app": "job"}}
    spec = {"containers": [{"name": "main"}]}
    job = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await shop.create(job | {"status": {"phase": "Succeeded"}})

    def requests_for_pods() -> dict[str, int]:
        """Return how often all pods were listed and watched."""
        requests = [each for each in shop.sandbox.requests if (each.resource, each.namespace) == ("pods", "")]
        verbs = [each.verb for each in requests if each.user_agent == "fastpath-adapter"]
        return {verb: verbs.count(verb) for verb in ("list", "watch")}

    async with serving(shop, tmp_path, *arguments) as adapter:
        await adapter.wait_for(LOADS, lambda answer: answer.status == 200 and len(answer.values) == 2)
        await shop.run(lambda: requests_for_pods()["watch"] == expected)
        single = f"/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods/"
        assert (await adapter.get(f"{single}job")).body["message"] == 'pods "job" not found', "it has ended"
        assert requests_for_pods() == {"list": expected, "watch": expected}
