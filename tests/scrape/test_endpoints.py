"""Which endpoints are scraped, and why others are not: `transcripts/endpoints` has slices and pods.

A line after `= ` has them in YAML. Below it are the endpoints, what is missing, what is refused, and why
there is nothing. `scripts/test tests/scrape --update` writes what is resolved now.
"""

from pathlib import Path
from typing import Any

import yaml

from adapter.config.rules_config import Access, EndpointSource
from adapter.kubernetes.cache.endpoint_slices import SliceEndpoint, SlicePort, WatchedSlice
from adapter.model.objects.label_selectors import parse_selector
from adapter.scrape import endpoints
from adapter.scrape.endpoints import FoundEndpoints
from tests.scrape.scenes import A, B
from tests.support.scripts import Recorded
from tests.support.world import scraped_pod

TRANSCRIPT = Path(__file__).parent / "transcripts" / "endpoints"
SERVICE = EndpointSource("inference", "gateway")
PODS = EndpointSource("inference", "", parse_selector("app=epp"))


def slice_of(given: dict[str, Any]) -> WatchedSlice:
    found = tuple(
        SliceEndpoint(address, pod, "unready" not in states, "terminating" in states)
        for address, pod, *states in given["of"]
    )
    named = given.get("ports", {"metrics": 9090, "http": 80})
    ports = tuple(SlicePort(name, number) for name, number in named.items())
    return WatchedSlice("inference", "s", ports, found, given.get("cut", False))


def resolve(kind: str, given: dict[str, Any]) -> FoundEndpoints:
    access = Access(given.get("port", "metrics"), host_network=given.get("host_network", False))
    pods = [scraped_pod(**pod) for pod in given["pods"]] if "pods" in given else [A, B]
    if kind == "pods":
        return endpoints.resolve_pods(PODS, access, pods)
    by_name = {pod.name: pod for pod in pods}
    by_address = {pod.ip: pod for pod in pods}
    slices = [slice_of(each) for each in given["slices"]]
    return endpoints.resolve_service(SERVICE, access, slices, by_name.get, by_address.get)


def told(found: FoundEndpoints) -> list[str]:
    lines = [f"{each.pod} {each.address}:{each.port}" for each in found.endpoints]
    lines += [f"missing {text}" for text in found.missing]
    lines += [f"refused {kind} {count}" for kind, count in found.refused]
    return [*lines, *([f"because {found.reason}"] if found.reason else [])]


def test_transcript(recorded: Recorded) -> None:
    said = []
    for line in TRANSCRIPT.read_text().splitlines():
        if line.startswith(("= ", "#")):
            said.append(line)
        if line.startswith("= "):
            kind, given = line[2:].split(" ", 1)
            said += told(resolve(kind, yaml.safe_load(given)))
    recorded(TRANSCRIPT, "".join(f"{line}\n" for line in said))


def test_too_many_endpoints_are_not_scraped_in_part() -> None:
    pods = [{"name": f"p{number}", "ip": f"10.0.{number // 250}.{number % 250}"} for number in range(1001)]
    several = {"slices": [{"of": [[pod["ip"], pod["name"]] for pod in pods]}], "pods": pods}
    found = resolve("service", several)

    assert (found.endpoints, found.refused) == ((), (("limit", 1),))
    assert found.reason == "Service inference/gateway has more than 1000 endpoints"
    assert resolve("service", {"slices": [{"of": [["10.0.0.1", "a"]], "cut": True}]}) == found
    assert resolve("pods", {"pods": pods}).refused == (("limit", 1),)
