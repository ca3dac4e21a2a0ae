"""What becomes of requests, as data: `transcripts/NAME` has requests, and what the server makes of each.

A line after `= ` names a reading, and has the header or the name that is read.

A line after `? ` is a target alone. Below it are the options of the call, what a review of the access asks,
and the question to the provider or the Status that refuses it.

A line after `$ ` is a request to a whole server: method, target, headers. Below it are the questions that
reached the provider, the review if the request was refused, and the answer: its status, its headers but for
those of every answer, and its body. A line after `@ ` starts another server, with settings in JSON.
`scripts/test tests/server --update` writes what is said now.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter import errors
from adapter.model.identity import AccessVerdict, User
from adapter.model.metrics import (
    ContainerUsage,
    CustomMetricInfo,
    CustomQuestion,
    ExternalQuestion,
    ExternalValue,
    GroupResource,
    MetricValue,
    ObjectReference,
    ObjectUsage,
    Usage,
)
from adapter.model.objects.field_selectors import FieldSelector
from adapter.server.api.paths import PREVIEW_VERSIONS, VERSIONS
from adapter.server.api.query_string import NO_OPTIONS, Question
from adapter.server.api.routing import find_route
from adapter.server.auth import authentication
from adapter.server.auth.authentication import HeaderReader
from adapter.server.auth.authorization import Attributes, Authorizer
from adapter.server.auth.client_cert import HeaderNames
from adapter.server.health import Check, Health
from adapter.server.http import listener, negotiation
from adapter.telemetry.metrics import Monitoring
from tests.support.clock import FakeClock
from tests.support.scripts import Recorded
from tests.support.serving import Answer, Provider, Reviews, Served, ServerFactory

FOLDER = Path(__file__).parent / "transcripts"
TRANSCRIPTS = {path: path.read_text().splitlines() for path in sorted(FOLDER.iterdir())}
TIME = 1_743_508_800.0  # 2025-04-01T12:00:00Z
EACH_ANSWER = {
    "cache-control": "no-cache, private",
    "server": "fastpath",
    "x-content-type-options": "nosniff",
}
VOLATILE = {"audit-id", "content-length", "date"}


# --- what the provider has


def value(kind: str, namespace: str, name: str, milli: int, time: float = TIME) -> MetricValue:
    return MetricValue(ObjectReference(kind, namespace, name, "/v1"), "http_requests", milli, time)


SERVICE = value("Service", "somens", "somesvc", 1000)
CUSTOM = {
    "http_requests": (value("Pod", "default", "web-1", 1500), value("Pod", "default", "web-2", 2000)),
    "ingress_hits": (SERVICE,),
    "load": (value("Node", "", "n1", 250, TIME + 0.999),),
    "aging": (SERVICE, value("Service", "somens", "somesvc", 1500, TIME + 61), SERVICE),
}
EXTERNAL: dict[str, dict[str, str] | None] = {
    "scalar": None,
    "queue": {},
    "lag": {"name": "q1", "__name__": "lag"},
}
POD_USAGES = (
    ObjectUsage(
        "shop",
        "web-1",
        {"tier": "front", "app": "web"},
        TIME + 0.9,
        Usage(1350, 104_857_600_000 + 1_500_500),
        (ContainerUsage("main", Usage(1100, 104_857_600_000)), ContainerUsage("side", Usage(250, 1_500_500))),
    ),
    ObjectUsage("shop", "web-2", {}, TIME, Usage(0, 0), (ContainerUsage("main", Usage(0, 0)),)),
)
NODE_USAGES = (ObjectUsage("", "n1", {"zone": "a<b"}, TIME, Usage(1500, 8_589_934_592_000)),)
FAILURES: dict[str, Exception] = {
    "gone": errors.NotFoundError("no metric gone for pods"),
    "gone_pod": errors.NotFoundError('pods "a" not found', {"kind": "pods", "name": "a"}),
    "unfetched": errors.PrometheusError("timeout", "http://user:secret@prometheus/api gave up"),
    "unlisted": errors.KubernetesError(403, "Forbidden", "cannot list pods"),
    "unsynced": errors.NotSyncedError("pods"),
    "late": TimeoutError(),
    "no_reason": errors.PlainError("without a reason"),
    "hostile": errors.BadRequestError("a<b>&c\u2028\u2029"),
    "defect": RuntimeError("password is hunter2"),
}
METRICS = [
    CustomMetricInfo(resource, namespaced, metric)
    for resource, namespaced, metric in (
        (GroupResource("", "pods"), True, "http_requests"),
        (GroupResource("", "nodes"), False, "temperature"),
        (GroupResource("networking.k8s.io", "ingresses"), True, "hits"),
        (GroupResource("", "pods"), True, 'a<b>&"'),
    )
]


async def answer(provider: Provider) -> None:
    """Set what the provider has for the last question."""
    question = provider.questions[-1]
    failing = question.metric if isinstance(question, CustomQuestion | ExternalQuestion) else question.name
    if failing in FAILURES:
        raise FAILURES[failing]
    if isinstance(question, CustomQuestion):
        provider.items = CUSTOM.get(question.metric, ())
    elif isinstance(question, ExternalQuestion):
        labels = EXTERNAL.get(question.metric)
        known = question.metric in EXTERNAL
        provider.external_items = (ExternalValue(question.metric, labels, 42_000, TIME),) if known else ()
    else:
        usages = POD_USAGES if question.resource == "pods" else NODE_USAGES
        provider.usages = tuple(
            each
            for each in usages
            if question.name in {None, each.name} and question.namespace in {None, each.namespace}
        )


# --- what is written of it


def question_text(question: Question) -> str:
    """Return what is asked, without what says nothing."""
    parts = question._asdict()
    if isinstance(fields := parts.get("fields"), FieldSelector):
        terms = (f"{term.field}{'!=' if term.negated else '='}{term.value}" for term in fields.terms)
        parts["fields"] = ",".join(terms)
    told = " ".join(f"{key}={each}" for key, each in parts.items() if str(each or ""))
    return f"{type(question).__name__.removesuffix('Question').lower()} {told}"


def status_text(error: errors.StatusError) -> str:
    return f"{error.code} {error.reason or '-'}: {error.message}"


CONFIGURED = HeaderNames(("x-a", "x-b"), ("x-uid", "x-remote-uid"), ("x-g", "x-h"), ("x-e-", "x-f-"))
ASKS = (negotiation.asks_nothing, negotiation.asks_aggregated, negotiation.asks_table)


def read_user(text: str, names: HeaderNames) -> str:
    reader = HeaderReader(names, Monitoring())
    lines = [line.split(": ", 1) for line in text.split(" | ")]
    told = reader.read((name.encode(), value.removeprefix("''").encode()) for name, value in lines).lines
    return str(reader.user(told))


def read_representation(text: str) -> str:
    name, value = text.split(": ", 1) if ": " in text else (text.rstrip(":"), "")
    return str(negotiation.choose_representation({name: value}, None))


def read_open(text: str) -> str:
    always_allow, path = text.split(" ")
    reviews = Reviews()
    paths = () if always_allow == "-" else always_allow.split(",")
    authorizer = Authorizer(reviews.review_access, FakeClock(), Monitoring(), always_allow=paths)
    return str(authorizer.is_open(Attributes("get", path)))


def broken() -> str | None:
    raise RuntimeError("a bug")


CHECKS = {
    "trust": Check("trust", lambda: None),
    "caches": Check("caches", lambda: "pods not synced: http://secret"),
    "prometheus": Check("prometheus", lambda: "refused", informational=True),
    "x": Check("x", broken),
}


def read_health(text: str) -> str:
    checks, target = text.split(" ")
    path, _, query = target.partition("?")
    readyz = [CHECKS[name] for name in checks.split(",") if name != "-"]
    told = Health(readyz=readyz, livez=[CHECKS["trust"]]).answer(path.split("/"), query)
    return f"{told.status} {told.text}".rstrip() if told is not None else "unknown"


READINGS: dict[str, Callable[[str], str]] = {
    "forms": lambda text: " ".join(repr(negotiation.choose_form(text, asks)) for asks in ASKS),
    "representation": read_representation,
    "audit": lambda text: str(negotiation.AUDIT_ID.fullmatch(text) is not None),
    "etag": lambda text: str(negotiation.matches_etag(text, '"A"')),
    "user": lambda text: read_user(text, HeaderNames()),
    "configured-user": lambda text: read_user(text, CONFIGURED),
    "bearer": lambda text: str(authentication.bearer_token(text[1:-1].encode())),
    "address": listener.group_address,
    "open": read_open,
    "health": read_health,
}


def read_target(target: str) -> Iterator[str]:
    """Yield what a target alone says."""
    route = find_route(target, VERSIONS)
    if route.options != NO_OPTIONS:
        given = set(route.options._asdict().items()) - set(NO_OPTIONS._asdict().items())
        yield f"options {' '.join(f'{key}={each}' for key, each in sorted(given))}"
    if route.attributes is not None:
        assert json.loads(route.attributes.key) == route.attributes.spec
        yield f"review {json.dumps(route.attributes.spec)}"
    if route.error is not None:
        yield status_text(route.error)
    elif route.request is not None:
        asked = route.parse_query()
        yield status_text(asked) if isinstance(asked, errors.StatusError) else question_text(asked)


def answer_text(found: Answer, paths: bytes) -> Iterator[str]:
    headers = {name: said for name, said in found.headers.items() if name not in VOLATILE}
    assert headers.items() >= EACH_ANSWER.items()
    yield " ".join([str(found.status), headers.pop("content-type", "-")])
    yield from (f"{name}: {said}" for name, said in headers.items() if name not in EACH_ANSWER)
    if found.status == 404 and found.body == paths:
        yield "(the body of /)"
        return
    yield from found.text.splitlines()
    if found.body and not found.text.endswith("\n"):
        yield "(no newline at the end)"


async def start(serve: ServerFactory, settings: dict[str, Any]) -> Served:
    versions = PREVIEW_VERSIONS if settings.pop("preview", False) else VERSIONS
    is_empty, denied = settings.pop("empty", False), settings.pop("denied", None)
    served = await serve(**{"groups": VERSIONS, "versions": versions, **settings})
    served.reviews.tokens["odd"] = User('a"b<c>')
    if denied is not None:
        served.reviews.verdict = lambda _: AccessVerdict(allowed=False, reason=denied)
    if not is_empty:
        served.provider.metrics = METRICS
        served.provider.external_names = ["queue_b", "queue_a", "x<y"]
    served.provider.window = 90.5
    served.provider.before = lambda: answer(served.provider)
    return served


async def send(served: Served, request: str) -> Iterator[str]:
    method, target, *lines = shlex.split(request)
    served.clock.advance(1000)  # no review is remembered
    served.provider.questions.clear()
    served.reviews.specs.clear()
    found = await served.get(target, method, dict(line.split(": ", 1) for line in lines))
    reviews = [json.dumps(spec) for spec in served.reviews.specs] if found.status in {403, 405} else ()
    paths = (await served.get("/")).body if found.status == 404 else b""
    asked = map(question_text, served.provider.questions)
    return iter([*(f"review {spec}" for spec in reviews), *asked, *answer_text(found, paths)])


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
async def test_transcript(path: Path, serve: ServerFactory, recorded: Recorded) -> None:
    said: list[str] = []
    served = None
    for line in TRANSCRIPTS[path]:
        if line.startswith(("@ ", "$ ", "? ", "= ", "#")):
            said.append(line)
        if line.startswith("= "):
            reading, text = line[2:].split(" ", 1)
            said += READINGS[reading](text).splitlines()
        if line.startswith("@ "):
            served = await start(serve, json.loads(line[2:]))
        elif line.startswith("$ "):
            served = served or await start(serve, {})
            said += await send(served, line[2:])
        elif line.startswith("? "):
            said += read_target(line[2:])
    recorded(path, "".join(f"{line}\n" for line in said))
