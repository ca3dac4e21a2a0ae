"""The image: its recipe, what buildah makes of it, and its start as a restricted pod.

The recipe is built whole, with a minimal Debian in place of the base image. The image is started in a
read-only root (`tests.manifests.containers` says what is real about it).
"""

import base64
import fnmatch
import json
import os
import re
import ssl
import subprocess
import time
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml
from packaging.requirements import Requirement

from adapter.cli.verbs import registered
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_tools import certs
from fastpath_tools.live import chart_values as helm_values
from scripts.generate import crd
from tests.manifests import containers
from tests.manifests.containers import Confined, Engine, Image, Pod
from tests.support import adapter as support
from tests.support import rendered, tools
from tests.support.kubectl import TOKEN
from tests.support.objects import plain
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written
from tests.support.rendered import JSON, Objects
from tests.support.tls import Authority

ROOT = rendered.ROOT
PREFIX = "/opt/fastpath"
TOOLS = re.compile(r"\b(apt-get|apk|gcc|g\+\+|make|build-essential|cargo|rustc|uv)\b")


class Instruction(NamedTuple):
    """One instruction of the Dockerfile; `stage` counts from 0, -1 before the first FROM."""

    stage: int
    name: str
    text: str


def _instructions() -> list[Instruction]:
    lines = (
        line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")
    )
    joined = "\n".join(lines).replace("\\\n", " ")
    found: list[Instruction] = []
    stage = -1
    for line in joined.splitlines():
        name, _, text = line.partition(" ")
        stage += name == "FROM"
        found.append(Instruction(stage, name, " ".join(text.split())))
    return found


def _of(name: str, stage: int) -> list[str]:
    return [each.text for each in _instructions() if (each.name, each.stage) == (name, stage)]


FINAL = 1


def test_two_stages_of_one_pinned_slim_base() -> None:
    (argument,) = _of("ARG", -1)
    base = re.fullmatch(r"PYTHON=python:(\d+)\.(\d+)\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", argument)
    assert base is not None
    assert [each.text for each in _instructions() if each.name == "FROM"] == [
        "${PYTHON} AS build",
        "${PYTHON}",
    ]
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert (int(base[1]), int(base[2])) >= tuple(map(int, wanted.removeprefix(">=").split(".")))


def test_the_final_stage_takes_the_environment_and_nothing_else() -> None:
    assert _of("COPY", FINAL) == [f"--from=build {PREFIX} {PREFIX}"]
    assert not [each for each in _instructions() if each.name in {"ADD", "VOLUME", "ONBUILD", "SHELL"}]
    (run,) = _of("RUN", FINAL)
    assert run.startswith("pip uninstall --yes ")
    assert {"pip", "setuptools", "wheel"} <= set(run.partition("&&")[0].split())
    assert "ensurepip" in run


def test_no_stage_installs_build_tools() -> None:
    for each in _instructions():
        assert each.name != "RUN" or not TOOLS.search(each.text), each.text


def test_installed_packages_are_pinned_by_hash_or_built_here() -> None:
    commands = [part.split() for text in _of("RUN", 0) for part in text.split("&&")]
    installs = [words for words in commands if "install" in words]
    assert len(installs) == 3
    for words in installs:
        locked = "--require-hashes" in words and "--only-binary=:all:" in words
        assert locked or {"--no-deps", "--no-index"} <= set(words), words
    for name in ("runtime.txt", "forecast.txt", "build.txt"):
        lines = (ROOT / "requirements" / name).read_text().replace("\\\n", " ").splitlines()
        pinned = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        assert pinned
        assert all("==" in line and "--hash=sha256:" in line for line in pinned), name


def test_it_runs_unprivileged_and_as_the_manifests_say() -> None:
    assert _of("USER", FINAL) == [f"{containers.USER}:{containers.USER}"]
    security = rendered.read_base().pod["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"]) == (containers.USER, containers.USER)
    assert [json.loads(text) for text in _of("ENTRYPOINT", FINAL)] == [["fastpath", "serve"]]
    assert not _of("CMD", FINAL)
    (port,) = rendered.read_base().container["ports"]
    assert _of("EXPOSE", FINAL) == [str(port["containerPort"])]


def test_the_build_sees_what_it_copies_and_nothing_else() -> None:
    sources = {source for text in _of("COPY", 0) for source in text.split()[:-1]}
    assert all((ROOT / source).exists() for source in sources)
    text = (ROOT / ".dockerignore").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == sources
    assert [line for line in lines[1:] if not line.startswith("!")] == ["**/__pycache__"]


# What the steps make.


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    engine = Engine(tmp_path_factory.mktemp("image"))
    yield engine.build(ROOT, "localhost/fastpath", PYTHON=engine.make_base())
    engine.remove()


def _run(image: Image, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return tools.call("chroot", image.root, f"{PREFIX}/bin/{program}", *arguments)


def _python(image: Image, code: str) -> Any:
    done = _run(image, "python", "-Ic", code)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.integration
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_it_holds_the_runtime_lock_and_the_project_alone(image: Image) -> None:
    listed = (
        "import importlib.metadata as m, json; print(json.dumps("
        "[d.name.lower().replace('_', '-').replace('.', '-') for d in m.distributions()]))"
    )
    lines = (ROOT / "requirements/runtime.txt").read_text().splitlines()
    locked = [Requirement(line.removesuffix(" \\")) for line in lines if re.match("[a-z]", line)]
    wanted = [each.name for each in locked if each.marker is None or each.marker.evaluate()]
    assert sorted(_python(image, listed)) == sorted([*wanted, "fastpath-adapter"])
    programs = {path.name for path in (image.root / PREFIX[1:] / "bin").iterdir()}
    assert "fastpath" in programs
    assert not [name for name in programs if fnmatch.fnmatch(name, "pip*")]
    site = Path(_python(image, "import adapter, json; print(json.dumps(adapter.__file__))")).parent.parent
    assert site.is_relative_to(PREFIX)
    for package in ("adapter", "fastpath_forecast", "fastpath_tools", "fastpath_sandbox"):
        installed = image.root / str(site / package)[1:]
        shipped = {str(path.relative_to(installed)) for path in installed.rglob("*.py")}
        assert shipped == {str(path.relative_to(ROOT / package)) for path in (ROOT / package).rglob("*.py")}
    whole = [verb.module for verb in registered().values() if not verb.needs]
    imports = f"[importlib.import_module(name).__name__ for name in {whole}]"
    assert _python(image, f"import importlib, json; print(json.dumps({imports}))") == whole
    for name, verb in registered().items():
        if name.startswith("__"):
            continue
        done = _run(image, "fastpath", name, "--help")
        if verb.needs and verb.command_line:
            assert (done.returncode, done.stderr) == (0, ""), name
            done = _run(image, "fastpath", name)
        if verb.needs:
            are = "which is" if len(verb.needs) == 1 else "which are"
            hint = f"{are} not installed: pip install '.[tools]' in a clone of the repository"
            sentence = f"fastpath {name}: needs {' and '.join(verb.needs)}, {hint}\n"
            assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence)
        else:
            assert (done.returncode, done.stderr) == (0, ""), name


@pytest.mark.integration
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_documented_packages_are_the_ten_largest(image: Image) -> None:
    code = """
import importlib.metadata, json
files = lambda each: (file.locate() for file in each.files)
size = lambda each: sum(path.stat().st_size for path in files(each) if path.is_file())
print(json.dumps({each.name: size(each) / 1e6 for each in importlib.metadata.distributions()}))
"""
    sizes: dict[str, float] = _python(image, code)
    page = (ROOT / "docs/contributing/dependencies.md").read_text()
    section = page.partition("## What the image weighs")[2].partition("\n## ")[0]
    rows = {name: int(size) for name, size in re.findall(r"^\| (\S+) \| (\d+) \|", section, re.MULTILINE)}
    assert rows.keys() == set(sorted(sizes, key=sizes.__getitem__)[-10:])
    assert rows == {name: pytest.approx(sizes[name], rel=0.15, abs=0.6) for name in rows}
    (total,) = re.findall(r"packages take (\d+) MB", section)
    assert int(total) == pytest.approx(sum(sizes.values()), rel=0.05)


# How it starts.

ACCOUNT = "account-token"
PODS = {"web-0": 10.0, "web-1": 20.0}


class PodSurroundings(NamedTuple):
    """What a pod finds around it."""

    cluster: Cluster
    prometheus: PrometheusServer
    account: Path

    def environment(self) -> dict[str, str]:
        """Return what the kubelet sets."""
        host, _, port = self.cluster.url.removeprefix("https://").partition(":")
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": "/"}


@pytest.fixture
def unused_port() -> int:
    return tools.free_port()


@pytest.fixture
async def world(
    authority: Authority, prometheus_server: PrometheusFactory, tmp_path: Path
) -> AsyncIterator[PodSurroundings]:
    prometheus = prometheus_server()
    now = time.time()  # noqa: TID251  # a real Prometheus looks at real time
    prometheus.write(
        *(
            Written(
                {"__name__": "http_requests_total", "namespace": "shop", "pod": pod},
                rate * (180 - age),
                now - age,
            )
            for pod, rate in PODS.items()
            for age in range(180, -1, -15)
        )
    )
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(ACCOUNT)
    (account / "ca.crt").write_bytes(authority.file.read_bytes())
    (account / "namespace").write_text("monitoring")
    tokens = {ACCOUNT: "system:serviceaccount:monitoring:adapter"}
    async with Cluster(tls=authority.server_context(), tokens=tokens) as cluster:
        support.admit(cluster)
        for pod in PODS:
            cluster.create(plain("Pod", pod, "shop", {"app": "web"}))
        yield PodSurroundings(cluster, prometheus, account)


CHART_VALUES = r"""
rules:
  default: false
  custom:
  - seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
    resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
    name: {matches: '^(.*)_total$', as: '${1}_per_second'}
    metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
"""
METRIC = (
    "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/"
    "pods/*/http_requests_per_second?labelSelector=app%3Dweb"
)


async def _ask(program: Confined, port: int, path: str, trust: ssl.SSLContext | None = None) -> Any:
    """Ask until it is OK; fails with the program's log when it ends or takes too long."""
    name = None if trust is None else "fastpath.fastpath.svc"
    deadline = time.monotonic() + 30  # noqa: TID251  # waits for a real program
    last: object = None
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        while time.monotonic() < deadline and not program.ended:  # noqa: TID251  # see above
            try:
                async with session.get(
                    f"https://127.0.0.1:{port}{path}", ssl=trust or False, server_hostname=name
                ) as response:
                    text = await response.text()
                    last = response.status, text
                    if response.status == 200:
                        return json.loads(text) if response.content_type == "application/json" else text
            except aiohttp.ClientError as error:
                last = error
    raise AssertionError(f"{path}: {last}\n{program.log}")


def _assert_confined(program: Confined, scratch: Sequence[str]) -> None:
    """Look from outside at what the process may do: no capability, no other user, nothing to write to."""
    wanted = {"Groups": [], "NoNewPrivs": ["1"]}
    wanted |= {key: [str(containers.USER)] * 4 for key in ("Uid", "Gid")}
    wanted |= {key: ["0" * 16] for key in ("CapEff", "CapPrm", "CapBnd", "CapInh")}
    assert {name: program.status(name) for name in wanted} == wanted
    writable = {where for where, options in program.mounts().items() if "ro" not in options}
    assert {where for where in writable if not where.startswith(("/proc", "/dev"))} == set(scratch)


def _values(answer: Any) -> dict[str, float]:
    return {
        item["describedObject"]["name"]: float(item["value"].removesuffix("m"))
        / (1000 if "m" in item["value"] else 1)
        for item in answer["items"]
    }


@pytest.mark.integration
@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_it_starts_with_the_arguments_of_the_chart(
    image: Image, world: PodSurroundings, tmp_path: Path, unused_port: int
) -> None:
    """Its Deployment too: service account, ConfigMap at /etc/adapter, emptyDir, self-signed certificate."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "config.yaml").write_text(helm_values.render_config(CHART_VALUES))
    arguments = [  # of the prometheus-community chart 5.3; older ones passed --logtostderr=true too
        "/adapter",
        f"--secure-port={unused_port}",
        "--cert-dir=/tmp/cert",
        "--logtostderr=true",
        f"--prometheus-url={world.prometheus.url}",
        "--metrics-relist-interval=1m",
        "--v=4",
        "--config=/etc/adapter/config.yaml",
    ]
    files = {"/etc/adapter": config, "/var/run/secrets/kubernetes.io/serviceaccount": world.account}
    pod = Pod(files, world.environment(), arguments, ["/tmp"])
    with containers.running(tmp_path, image, pod) as program:
        assert await _ask(program, unused_port, "/healthz") == "ok"
        await _ask(program, unused_port, "/readyz")
        _assert_confined(program, ["/tmp"])
        values = _values(await _ask(program, unused_port, METRIC))
        assert values == {pod: pytest.approx(rate, rel=0.2) for pod, rate in PODS.items()}
        assert program.stop() == 0
    assert "Traceback" not in program.log


@pytest.mark.integration
@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_it_starts_with_the_arguments_of_the_manifests_and_writes_nothing(
    image: Image, world: PodSurroundings, tmp_path: Path, unused_port: int
) -> None:
    """With the Secret of `fastpath certs`; a client trusts it under the Service's name by its bundle."""
    base = rendered.read_base()
    files, trust = _mounted(base, base.one("ConfigMap"), world, tmp_path)
    own = [f"--secure-port={unused_port}", f"--prometheus-url={world.prometheus.url}", "--shutdown-delay=0s"]
    pod = Pod(files, world.environment(), [*base.container["args"], *own])
    with containers.running(tmp_path, image, pod) as program:
        await _ask(program, unused_port, "/readyz", trust)
        _assert_confined(program, [])
        values = _values(await _ask(program, unused_port, METRIC, trust))
        assert values == {pod: pytest.approx(rate, rel=0.2) for pod, rate in PODS.items()}
        assert program.stop() == 0
    assert "Traceback" not in program.log


@pytest.mark.integration
@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_the_scaler_starts_with_the_arguments_of_the_manifests_and_writes_nothing(
    image: Image, world: PodSurroundings, tmp_path: Path, unused_port: int
) -> None:
    """It answers probes, and shows its metrics to a caller who trusts the authority and has the right."""
    components = ("scaler", "service-monitor", "scaler-service-monitor")
    objects = rendered.render(rendered.write_overlay(tmp_path / "overlay", components)).of("fastpath-scaler")
    files, trust = _mounted(objects, objects.one("ConfigMap", "fastpath-rules"), world, tmp_path)
    health = tools.free_port()
    own = [
        f"--prometheus-url={world.prometheus.url}",
        f"--metrics-bind-address=:{unused_port}",
        f"--health-probe-bind-address=:{health}",
        "--local-address=",
    ]
    world.cluster.create(plain("Namespace", "monitoring"))
    world.cluster.create(crd.definition())
    arguments = [*objects.container["args"], *own]
    pod = Pod(files, world.environment(), arguments, command=objects.container["command"])
    with containers.running(tmp_path, image, pod) as program:
        await _ask(program, unused_port, "/readyz", trust)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{health}/readyz") as response,
        ):
            assert (response.status, await response.text()) == (200, "ok")
        metrics = await _ask(program, unused_port, "/metrics", trust)
        assert "fastpath_scaler_autoscalers 0.0" in metrics
        _assert_confined(program, [])
        assert program.stop() == 0
    assert "Traceback" not in program.log


def _mounted(
    objects: Objects, rules: JSON, world: PodSurroundings, folder: Path
) -> tuple[dict[str, Path], ssl.SSLContext]:
    """Return what the container mounts, with a Secret of `fastpath certs`, and what a client trusts then.

    The files of the Secret are as the kubelet writes them with fsGroup and mode 0440.
    """
    for name in ("rules", "serving"):
        (folder / name).mkdir()
    for name, text in rules["data"].items():
        (folder / "rules" / name).write_text(text)
    assert certs.main(["--out-dir", str(folder / "certs")]) == 0
    secret = yaml.safe_load((folder / "certs" / "secret.yaml").read_text())
    for name, text in secret["data"].items():
        path = folder / "serving" / name
        path.write_bytes(base64.b64decode(text))
        path.chmod(0o440)
        if os.geteuid() == 0:
            os.chown(path, 0, containers.USER)
    mounts = {mount["name"]: mount["mountPath"] for mount in objects.container["volumeMounts"]}
    files = {
        mounts["rules"]: folder / "rules",
        mounts["serving-cert"]: folder / "serving",
        "/var/run/secrets/kubernetes.io/serviceaccount": world.account,
    }
    return files, ssl.create_default_context(cafile=folder / "certs" / "ca.crt")
