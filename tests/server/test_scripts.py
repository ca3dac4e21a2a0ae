"""Whole servers over real TLS, as data: who is answered, what is kept, and which connection ends.

`scripts/NAME` has stories. After `> ` something happens:

- `server SETTINGS` starts one with settings in JSON; with `is_certified` it believes client certificates.
- `get CALLER TARGET HEADERS` sends a request on a connection of its own, `on NAME CALLER TARGET HEADERS` on
  one that is open. A caller is `anonymous`, a token, or `via:NAME`, as a front proxy says it. `begin NAME
  CALLER TARGET HEADERS` waits only until it is under way, and `end NAME ...` for the answers.
- `open NAME ...` opens connections, `from` an address of loopback and `as` one with a certificate. `write
  NAME TEXT` sends bytes, `read NAME ...` reads an answer, `ended NAME ...` waits until the server ends a
  connection without a word, `idle COUNT` until so many wait for requests. `drop NAME` closes one, and
  `pause SECONDS` lets real time pass.
- `user TOKEN DETAILS` and `no-user TOKEN`, `verdict all`, `none`, `both`, `denied`, or what bob has to ask
  for, and `reviews wait`, `go`, `fail CODE` and `work` are the reviews of the API server; `review` says the
  last one.
- `items COUNT MILLI`, `fresh SECONDS`, `generation`, `fail MESSAGE`, `hold` and `release`, and `canonical`,
  the resource that a name means, are the provider. With `reload` and `learn` it changes while a question is
  answered.
- `wait SECONDS` moves the clock, `lose-trust` has other authorities believed, and `metric NAME` says what
  the server's own metrics say. `stop` begins the end, `stopping` and `stopped` look at it.

`{TEXT*COUNT}` is repeated text, and in a line `times COUNT ...` the number stands for `#`. Below it are the
answers, and how many questions and reviews there were.
`scripts/test tests/server/test_scripts.py --update` writes what is said now.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import re
import shlex
import string
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from adapter import errors
from adapter.boost.provider import FloorProvider, ObservedHPA
from adapter.model.identity import AccessVerdict, User
from adapter.server.http.handler import HandlerLimits
from tests.boost.floors import FakeAutoscalers, FakeFloors, entry
from tests.server.test_transcripts import question_text
from tests.support.clock import FakeClock, ShiftedClock
from tests.support.scripts import Scripts
from tests.support.serving import Answer, Certified, Connection, Served, ServerFactory, pod_value
from tests.support.waiting import until

SCRIPTS = {path.name: Scripts(path) for path in sorted((Path(__file__).parent / "scripts").iterdir())}
ROOT = "/apis/custom.metrics.k8s.io/v1beta2"
NAMES = {
    "ROOT": ROOT,
    "PODS": f"{ROOT}/namespaces/default/pods/%2A/m",
    "USAGES": "/apis/metrics.k8s.io/v1/namespaces/shop/pods",
    "QUEUE": "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/m",
    "FLOOR": "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/fastpath_replicas",
    "HPAS": f"{ROOT}/namespaces/shop/horizontalpodautoscalers.autoscaling",
    "LIVEZ": r"GET /livez HTTP/1.1\r\nHost: x\r\n",
    "MANY_GROUPS": r"GET /version HTTP/1.1\r\nHost: x\r\nX-Remote-User: bob\r\n"
    r"{X-Remote-Group: group-000\r\n*1000}",
}
CLOSED = 1.5
"""Seconds of patience with a connection that has to end."""


def expand(text: str, number: int = 0) -> str:
    """Return a text with its names, numbers and repetitions."""
    named = string.Template(text).safe_substitute(NAMES).replace("#", str(number))
    return re.sub(r"\{(.*?)\*(\d+)\}", lambda found: found[1] * int(found[2]), named)


def headers_of(caller: str, words: Sequence[str]) -> dict[str, str]:
    if caller.startswith("via:"):
        named = {"X-Remote-User": caller.removeprefix("via:")}
    else:
        named = {} if caller == "anonymous" else {"Authorization": f"Bearer {caller}"}
    return named | dict(word.split(":", 1) for word in words)


def answer_text(answer: Answer) -> str:
    """Return status, and the values or the reason."""
    said, is_json = str(answer.status), answer.headers.get("content-type") == "application/json"
    content = answer.json if is_json and answer.body else {}
    if answer.status >= 400:
        told = (content.get("reason"), content.get("message")) if is_json else (answer.text.strip(),)
        said = " ".join([said, ": ".join(filter(None, told))]).rstrip()
    elif content.get("kind") in {"Table", "PodMetricsList"}:
        said += f" {content['kind']}"
    elif items := content.get("items"):
        about = [item.get("describedObject", {"name": item.get("metricName")}) for item in items]
        values = [f"{each['name']}={item['value']}" for each, item in zip(about, items, strict=True)]
        said += f" {' '.join(values)}" if len(values) < 4 else f" {len(values)} values"
    return said + ", and closes" * (answer.headers.get("connection") == "close")


class ServerScript:
    """A server, its connections and requests under way, and what is said of them."""

    def __init__(self, served: Served, log: pytest.LogCaptureFixture) -> None:
        self.served = served
        self._log = log
        self.said: list[str] = []
        self._open: dict[str, Connection] = {}
        self._begun: dict[str, asyncio.Task[Answer]] = {}
        self._last = Answer(0, {}, b"")
        self._release = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self.certified: Certified | None = None
        self.floors = FakeFloors()
        self.lines: list[bytes] = []
        served.reviews.tokens |= {name: User(name) for name in ("bob", "eve", "alice")}

    @property
    def _counts(self) -> tuple[int, int, int]:
        reviews = self.served.reviews
        return len(self.served.provider.questions), len(reviews.specs), len(reviews.reviewed)

    async def happen(self, verb: str, *words: str) -> list[str]:
        method: Callable[..., Any] = getattr(self, verb.replace("-", "_"))
        said = method(*words)
        said = await said if isinstance(said, Awaitable) else said
        return [said] if isinstance(said, str) else said or []

    async def times(self, count: str, verb: str, *words: str) -> list[str]:
        said = [
            line
            for number in range(int(count))
            for line in await self.happen(verb, *(expand(word, number) for word in words))
        ]
        told = ((line, len(list(same))) for line, same in itertools.groupby(said))
        return [f"{line}{f' ({times} times)' * (times > 1)}" for line, times in told]

    # -- requests ------------------------------------------------------------------------------------------

    async def get(self, caller: str, target: str, *words: str) -> str:
        return await self._ask(await self.served.connect(), caller, target, *words)

    async def send(self, method: str, caller: str, target: str) -> str:
        return answer_text(await self.served.get(target, method, headers_of(caller, ())))

    async def on(self, name: str, caller: str, target: str, *words: str) -> str:
        return await self._ask(self._open[name], caller, target, *words)

    async def _ask(self, connection: Connection, caller: str, target: str, *words: str) -> str:
        before = self._counts
        answer = self._last = await connection.request(target, headers=headers_of(caller, words))
        counts = (after - begun for after, begun in zip(self._counts, before, strict=True))
        kinds = ("question", "review", "token reviewed")
        more = [f"{count} {kind}" for count, kind in zip(counts, kinds, strict=True) if count]
        return ", ".join([answer_text(answer), *more])

    def body(self) -> str:
        return self._last.text.rstrip()

    async def begin(self, name: str, caller: str, target: str, *words: str) -> None:
        served = self.served
        connection = self._open.get(name) or await served.connect()
        before, asked = (self._counts, served.in_review), len(served.provider.questions)
        task = asyncio.create_task(connection.request(target, headers=headers_of(caller, words)))
        self._begun[name] = task

        def is_under_way() -> bool:
            """Return whether it has come to the reviews that wait, or has passed those that do not."""
            if served.reviews.gate.is_set():
                return len(served.provider.questions) > asked
            return (self._counts, served.in_review) != before

        await until(lambda: task.done() or is_under_way())

    async def end(self, *names: str) -> list[str]:
        return [f"{name}: {await self._answer(self._begun.pop(name))}" for name in names]

    @staticmethod
    async def _answer(begun: asyncio.Task[Answer]) -> str:
        try:
            return answer_text(await begun)
        except (ConnectionError, asyncio.IncompleteReadError):
            return "its connection ends"

    async def close(self) -> None:
        for task in self._begun.values():
            await self._answer(task)

    # -- connections ---------------------------------------------------------------------------------------

    async def open(self, *words: str) -> None:
        options = dict(itertools.pairwise(words))
        names = list(itertools.takewhile(lambda word: word not in {"as", "from"}, words))
        context = getattr(self.certified, options["as"]) if "as" in options else None
        for name in names:
            self._open[name] = await self.served.connect(context, address=options.get("from", "127.0.0.1"))

    def write(self, name: str, text: str) -> None:
        self._open[name].writer.write(text.encode().decode("unicode_escape").encode("latin-1"))

    async def read(self, *names: str) -> list[str]:
        return [answer_text(await self._open[name].read_answer()) for name in names]

    async def pause(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    async def ended(self, *names: str) -> list[str]:
        for name in names:
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(CLOSED):
                    assert await self._open[name].closed(), f"{name} is sent something"
        return ["yes"]

    def drop(self, name: str) -> None:
        self._open[name].writer.transport.abort()

    async def idle(self, count: str) -> None:
        """Wait until so many connections are there, and may end."""
        await until(lambda: [each.waits for each in self.served.ends] == [True] * int(count))

    def lose_trust(self) -> None:
        assert self.certified is not None
        self.certified.lose_trust()

    def stop(self) -> None:
        self._stopping = asyncio.create_task(self.served.server.stop())

    async def stopping(self) -> str:
        await asyncio.sleep(0.1)
        return "no" if self._stopping is None or self._stopping.done() else "yes"

    async def stopped(self) -> str:
        async with asyncio.timeout(0.5):
            await cast("asyncio.Task[None]", self._stopping)
        return "yes"

    # -- reviews -------------------------------------------------------------------------------------------

    def user(self, token: str, details: str = "{}") -> None:
        fields = {"name": token} | json.loads(details)
        self.served.reviews.tokens[token] = msgspec.convert(fields, User)

    def no_user(self, token: str) -> None:
        del self.served.reviews.tokens[token]

    def verdict(self, *words: str) -> None:
        wanted = dict(word.split("=") for word in words if "=" in word).items()

        def verdict(spec: dict[str, Any]) -> AccessVerdict:
            attributes = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
            is_allowed = spec["user"] == "bob" and wanted <= attributes.items()
            return AccessVerdict(
                is_allowed if wanted else words[0] in {"all", "both"}, denied=words[0] in {"both", "denied"}
            )

        self.served.reviews.verdict = verdict

    def reviews(self, verb: str, code: str = "0") -> None:
        reviews = self.served.reviews
        if verb in {"wait", "go"}:
            (reviews.gate.clear if verb == "wait" else reviews.gate.set)()
        else:
            error = errors.KubernetesError(int(code), "Reason", "https://10.0.0.1 is down")
            reviews.error = error if verb == "fail" else None

    def review(self) -> str:
        return json.dumps(self.served.reviews.specs[-1])

    # -- the provider --------------------------------------------------------------------------------------

    def items(self, count: str, milli: str, age: str = "0") -> None:
        names, time = (f"web-{number}" for number in range(int(count))), self.served.clock.wall() - float(age)
        self.served.provider.items = tuple(pod_value(name, int(milli), time=time) for name in names)

    def fresh(self, seconds: str) -> None:
        self.served.provider.fresh_until = self.served.clock.monotonic() + float(seconds)

    def generation(self) -> None:
        self.served.provider.generation += 1

    def reload(self) -> None:
        """Have the registry change while the next question is answered."""

        async def reload() -> None:
            self.generation()
            self.served.provider.before = None

        self.served.provider.before = reload

    def fail(self, message: str = "") -> None:
        self.served.provider.error = errors.NotFoundError(message) if message else None

    def hold(self) -> None:
        self._release = self.served.provider.hold()

    def release(self) -> None:
        self._release.set()

    def canonical(self, written: str, name: str = "") -> None:
        self.served.provider.canonical[written] = name or None

    def question(self) -> str:
        return question_text(self.served.provider.questions[-1])

    def learn(self, written: str, name: str) -> None:
        """Have the name of a resource become known while the next question is answered."""

        async def learn() -> None:
            self.canonical(written, name)

        self.served.provider.before = learn

    def floor(self, replicas: str) -> None:
        """Publish a floor of the autoscaler web in the namespace shop."""
        self.floors.publish(entry(int(replicas)))
        self.floors.arrive()

    def unread_floors(self) -> None:
        self.floors.unread = errors.NotSyncedError("10.0.0.1:443 refuses")

    async def accesses(self) -> list[str]:
        """Return what the access log has, but what differs each time."""
        assert self.served.access_log is not None
        await self.served.access_log.flush()
        found = [json.loads(line) for line in b"".join(self.lines).splitlines()]
        self.lines.clear()
        return [
            f"{each['user']} {each['verb']} {each['path'][:100]} ({len(each['path'])}) {each['code']}"
            + ", no bytes" * (each["bytes"] == 0)
            for each in found
        ]

    def wait(self, seconds: str) -> None:
        self.served.clock.advance(float(seconds))

    def logged(self) -> list[str]:
        messages = [record.message for record in self._log.records if record.levelno > logging.DEBUG]
        return messages or ["nothing"]

    def metric(self, name: str) -> list[str]:
        lines = self.served.monitoring.exposition().splitlines()
        return [line for line in lines if line.startswith(name)]


Start = Callable[..., Awaitable[ServerScript]]


@pytest.fixture
def start(serve: ServerFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Start:
    async def start(**settings: Any) -> ServerScript:
        bounds = {key: settings.pop(key) for key in HandlerLimits.__dataclass_fields__ if key in settings}
        certified = (
            Certified(serve, tmp_path, ShiftedClock()) if settings.pop("is_certified", False) else None
        )
        floors, lines, clock = FakeFloors(), list[bytes](), FakeClock()
        if settings.pop("boosts", False):
            boosted: Any = FakeAutoscalers({("shop", "web"): ObservedHPA("1", "100", 50, boosts=True)})
            published: Any = floors
            settings |= {"clock": clock, "floors": FloorProvider(boosted, published, clock)}
        starting = serve if certified is None else certified.start
        script = ServerScript(
            await starting(limits=HandlerLimits(**bounds), sink=lines.append, **settings), caplog
        )
        script.certified, script.floors, script.lines = certified, floors, lines
        return script

    return start


@pytest.mark.parametrize(
    ("scripts", "title"),
    [(scripts, title) for scripts in SCRIPTS.values() for title in scripts.titles],
    ids=[title for scripts in SCRIPTS.values() for title in scripts.titles],
)
async def test_script(scripts: Scripts, title: str, start: Start, pytestconfig: pytest.Config) -> None:
    said, script = list[str](), None
    for line in scripts.lines(title):
        verb, *words = shlex.split(line)
        said.append(f"> {line}")
        if verb == "server":
            script = await start(**json.loads(words[0]))
            continue
        script = script or await start()
        said += await script.happen(verb, *(words if verb == "times" else map(expand, words)))
    if script is not None:
        await script.close()
    scripts.check(title, said, pytestconfig)
