"""When the query of a request is read: after its caller is known, and within the caller's limit."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from adapter.model.identity import AccessVerdict, User
from adapter.model.metrics import ExternalQuestion
from adapter.model.objects import field_selectors, label_selectors
from adapter.server.api.paths import VERSIONS
from tests.support.serving import Answer, Served, ServerFactory, pod_value

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n"
PODS = f"{CUSTOM}/pods/%2A/m"
QUEUE = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/m"
USAGES = "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods"
BOB = {"Authorization": "Bearer bob"}
MADE_UP = {"Authorization": "Bearer made-up"}
SELECTORS = "labelSelector=a%3Db,c&metricLabelSelector=d&fieldSelector=metadata.name%3Dx"
LONG = "labelSelector=a+in+(" + ",".join(f"v{number}" for number in range(900)) + ")"

EACH_FORM = pytest.mark.parametrize("target", [PODS, QUEUE, USAGES], ids=["custom", "external", "resource"])


class Sink:
    """An access log that keeps nothing."""

    def write(self, lines: bytes) -> None:
        assert lines


@pytest.fixture
async def served(serve: ServerFactory) -> Served:
    """Return a server that logs every request, knows bob, and allows what a test says."""
    served = await serve(groups=VERSIONS, sink=Sink().write)
    served.reviews.tokens["bob"] = User("bob")
    served.provider.items = (pod_value("web-1", 1500),)
    return served


@contextmanager
def watching() -> Iterator[list[int]]:
    """Return the threads in which selectors are parsed meanwhile, one entry for each."""
    threads: list[int] = []
    labels, fields = label_selectors.parse_selector, field_selectors.parse_selector

    def parse_labels(text: str, **options: Any) -> Any:
        threads.append(threading.get_ident())
        return labels(text, **options)

    def parse_fields(text: str) -> Any:
        threads.append(threading.get_ident())
        return fields(text)

    with (
        mock.patch.object(label_selectors, "parse_selector", parse_labels),
        mock.patch.object(field_selectors, "parse_selector", parse_fields),
    ):
        yield threads


def deny(served: Served) -> None:
    served.reviews.verdict = lambda _: AccessVerdict(allowed=False)


def status(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["message"]


@EACH_FORM
@pytest.mark.parametrize("query", [SELECTORS, LONG], ids=["short", "long"])
async def test_no_selector_of_a_stranger_is_read(served: Served, target: str, query: str) -> None:
    """Neither of an anonymous caller, nor of one with a made-up token, also during its review."""
    deny(served)
    with watching() as parsed:
        assert (await served.get(f"{target}?{query}")).status == 403
        assert (await served.get(f"{target}?{query}", headers=MADE_UP)).status == 401
        assert (await served.get(f"{target}?{query}", headers=MADE_UP)).status == 401
    assert parsed == []


@pytest.mark.parametrize("target", [PODS, f"{CUSTOM}/pods/x/m", f"{CUSTOM}/metrics/m", f"{USAGES}/x"])
async def test_no_selector_is_read_that_the_review_does_not_name(served: Served, target: str) -> None:
    deny(served)
    with watching() as parsed:
        assert (await served.get(f"{target}?{SELECTORS}", headers=BOB)).status == 403
    assert parsed == []


@EACH_FORM
async def test_a_review_of_an_anonymous_caller_names_no_selector(served: Served, target: str) -> None:
    """It asks for the whole list, and every selector is then answered from that one review."""
    for query in ("labelSelector=a", "labelSelector=b"):
        assert (await served.get(f"{target}?{query}")).status == 200
    (spec,) = served.reviews.specs
    assert not {"labelSelector", "fieldSelector"} & spec["resourceAttributes"].keys()
    asked = [
        str(question.selector if isinstance(question, ExternalQuestion) else question.objects)
        for question in served.provider.questions
    ]
    assert asked == ["a", "b"]


@EACH_FORM
async def test_a_long_query_is_read_in_a_thread_of_its_own(served: Served, target: str) -> None:
    """Other requests go on meanwhile; and what it asks is the same."""
    assert len(LONG) > 4096
    assert (await served.get("/version", headers=BOB)).status == 200
    with watching() as parsed:
        assert (await served.get(f"{target}?{LONG}", headers=BOB)).status == 200
    assert parsed
    assert threading.get_ident() not in parsed
    (question,) = served.provider.questions
    selector = question.selector if isinstance(question, ExternalQuestion) else question.objects
    assert len(selector.requirements[0].values) == 900
    if target != PODS:
        assert (
            served.reviews.specs[-1]["resourceAttributes"]["labelSelector"]["requirements"][0]["key"] == "a"
        )


async def test_a_kept_route_is_not_read_again(served: Served) -> None:
    served.provider.fresh_until = served.clock.monotonic() + 1000
    for _ in range(2):
        assert (await served.get(f"{PODS}?{SELECTORS.partition('&field')[0]}", headers=BOB)).status == 200
    with watching() as parsed:
        assert (await served.get(f"{PODS}?{SELECTORS.partition('&field')[0]}", headers=BOB)).status == 200
    assert parsed == []


# --- names of resources
