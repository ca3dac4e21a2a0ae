"""The documentation matches the code: it is complete, every link resolves, every example works."""

import re
import tomllib
from pathlib import Path

import pytest

from adapter.cli import main
from adapter.config import rules_config, rules_file, scrape_keys
from adapter.config.options import SERVE
from adapter.model import timestamps
from adapter.model.autoscaling import boost as model
from adapter.model.objects.resources import BUILTIN
from adapter.rules import compile as compiler
from adapter.rules.template import functions
from adapter.telemetry import metrics
from fastpath_tools.check import lint
from fastpath_tools.live import chart_values as helm_values
from fastpath_tools.live import preview
from scripts.generate import docs, field_tables
from tests.support import rendered
from tests.support.world import compile_text

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob(".github/*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("manifests/*.md")),
    ROOT / "headlamp-plugin" / "README.md",
]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))
CONFIGURATION = (ROOT / "docs" / "reference" / "configuration.md").read_text()

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FLAGS = frozenset(name for command in docs.COMMANDS for name in command.table)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Return what may follow the # of a link, as GitHub makes it of the headings."""
    headings = _HEADING.findall(page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in _anchors(target), link


def test_the_picture_of_the_readme_is_there_in_light_and_dark_and_is_small() -> None:
    readme = (ROOT / "README.md").read_text()
    pictures = re.findall(r'(?:srcset|src)="(docs/images/[^"]+\.png)"', readme)
    assert pictures == ["docs/images/ui-dark.png", "docs/images/ui-light.png"]
    for picture in pictures:
        assert 10_000 < (ROOT / picture).stat().st_size < 150_000, picture


def test_the_map_leads_to_every_page() -> None:
    start = ROOT / "docs" / "README.md"
    linked = {(start.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(start.read_text())}
    folders = [ROOT / "docs" / name for name in ("", "guides", "reference", "contributing")]
    pages = {page for folder in folders for page in folder.glob("*.md")} - {start}
    assert [str(page.relative_to(ROOT)) for page in sorted(pages - linked)] == []
    decisions = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for page in ROOT.glob("docs/decisions/*.md"):
        assert page.name == "README.md" or f"({page.name})" in decisions, page.name


@pytest.mark.parametrize("page", field_tables.PAGES)
def test_tables_of_fields_are_up_to_date(page: str) -> None:
    text = (field_tables.DOCS / page).read_text()
    assert "<!-- fields of " in text
    assert field_tables.render(text) == text, "run python -m scripts.generate.docs"


@pytest.mark.parametrize("name", docs.PAGES)
def test_made_pages_are_up_to_date(name: str) -> None:
    made = docs.PAGES[name]()
    assert (docs.DOCS / name).read_text() == made, "run python -m scripts.generate.docs"


def test_metrics_and_flags_that_pages_name_exist() -> None:
    names = {row.name for row in metrics.METRICS} | {model.METRIC}
    flags = {*_FLAGS, "help", "help-all", "version"}
    for page in PAGES:
        text = page.read_text()
        for name in re.findall(r"(?<!/)\b(fastpath_(?!tools\b|sandbox\b|forecast\b)[a-z_]+)", text):
            assert name.removesuffix("_bucket") in names, (page.name, name)
        for name in re.findall(r"(?<![\w-])--([a-z][\w-]+)", text):
            assert name in flags | OTHER_FLAGS or name.startswith("horizontal-pod-autoscaler-"), (
                page.name,
                name,
            )


# Flags of other programs (kubectl above all, and those that rule packs are for) and of scripts.
_OTHER_FLAGS = """
folder named unknown update write data-parallel-size max-num-seqs max-running-requests enable-metrics
enable-metrics-for-all-schedulers metrics-endpoint-auth metrics-cert-dir metrics-per-host
exclude-socket-metrics queues create-namespace data-urlencode values set reuse-values all output
all-namespaces annotate count message thorough certificate-authority build-arg certificate-identity
certificate-oidc-issuer clusterrole ignore-vuln containers force-conflicts dry-run ignore-not-found
patch-file repo replicas server-side serviceaccount timeout token type user proxy-client-cert-file name
fix format raw insecure-skip-tls-verify upgrade upgrade-package interleave pages strip-components
enable-feature enable-apiservice-patching kube-api-qps
"""
OTHER_FLAGS = frozenset(_OTHER_FLAGS.split())


def test_every_key_of_the_rules_file_is_documented() -> None:
    for key in rules_file.VOCABULARY:
        assert re.search(rf"`([\w.]*\.)?{re.escape(key)}(\.\w+)?(: [^`]*)?`", CONFIGURATION), key
    example = (ROOT / "docs" / "examples" / "all-keys.yaml").read_text()
    for key in rules_file.VOCABULARY:
        assert re.search(rf"\b{re.escape(key)}:", example), key


def test_bounds_and_defaults_are_documented() -> None:
    for key, (least, greatest) in rules_file.BOUNDS.items():
        (row,) = re.findall(rf"^\| `{key}` \|.*$", CONFIGURATION, re.MULTILINE)
        low, high = timestamps.format_go_duration(least), timestamps.format_go_duration(greatest)
        assert f"From {low} to {high}" in row
    for key, flag in (("ttl", "metrics-ttl"), ("maxAge", "metrics-max-answer-age")):
        assert f"| `{key}` | `--{flag}`, {SERVE.table[flag].default} |" in CONFIGURATION
    for key, bounds in scrape_keys.BOUNDS.items():
        (row,) = re.findall(rf"^\| `scrape.{key}` \|.*$", CONFIGURATION, re.MULTILINE)
        low, high = map(timestamps.format_go_duration, bounds)
        assert f"From {low} to {high}" in row
    for key, bounds in scrape_keys.COUNTS.items():
        default = {
            "maxBytes": rules_config.MAX_BYTES,
            "maxLines": rules_config.MAX_LINES,
            "maxSeries": rules_config.MAX_SERIES,
        }[key]
        (row,) = re.findall(rf"^\| `scrape.{key}` \| {default} \|.*$", CONFIGURATION, re.MULTILINE)
        assert f"From {bounds.least} to {bounds.greatest}" in row
    for value in (*rules_config.OnNaN, *rules_config.OnWarnings):
        assert f"`{value.value}`" in CONFIGURATION


def test_the_template_language_is_documented() -> None:
    for name in functions.FUNCTIONS:
        assert f"`{name}`" in CONFIGURATION
    for variable in ("Series", "LabelMatchers", "LabelValuesByName", "GroupBy", "GroupBySlice"):
        assert f"| `.{variable}` |" in CONFIGURATION


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_work_and_are_listed(path: Path) -> None:
    text = path.read_text()
    read = helm_values.rules_from_chart if helm_values.is_chart_values(text) else rules_file.parse_rules
    parsed = read(text, path.name)
    assert (parsed.faults, parsed.fatal) == ((), ())
    ruleset, faults = compiler.compile_rules(parsed.config, BUILTIN)
    assert faults == ()
    made = preview.preview_rules(ruleset, {})
    saturates = ["DCGM_FI_DEV_GPU_UTIL"] if path.name == "gpu.yaml" else []
    assert [warning.value for warning in lint.lint(made, 15.0)] == saturates
    (row,) = re.findall(
        rf"^\| \[{path.name}\]\(\.\./examples/{path.name}\) \| ([^|]*) \|", CONFIGURATION, re.MULTILINE
    )
    assert re.findall(r"`(\w+)`", row) == [metric for each in made for metric in each.metrics]
    for each in made:
        assert each.main is not None
        separability = each.main.separability
        assert separability is None or not separability.reason


def test_rules_on_pages_work() -> None:
    found = [
        (page, block)
        for page in PAGES
        for block in rendered.blocks(page.read_text(), "yaml")
        if block.startswith(("rules:\n", "resourceRules:\n"))
    ]
    assert {page.name for page, _ in found} >= {"getting-started.md", "scrape-pods.md", "fast-cpu.md"}
    for page, block in found:
        assert lint.lint(preview.preview_rules(compile_text(block), {}), 15.0) == [], page.name


def test_every_verb_is_documented() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    verbs = re.findall(r"^  (\w+) ", main.usage(), re.MULTILINE)
    assert set(verbs) >= {"serve", "check", "demo"}
    for verb in verbs:
        assert f"fastpath {verb}" in text, verb


def test_the_layers_of_the_architecture_are_those_of_the_import_contract() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Layers")[2].partition("\n## ")[0]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(each["layers"] for each in settings["contracts"] if each.get("containers") == ["adapter"])
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == layers


def test_packages_and_modules_of_the_reading_order_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Reading order")[2].partition("\n## ")[0]
    for package, row in re.findall(r"^\| \d+ \| `([\w/]+)` \| (.*) \|$", section, re.MULTILINE):
        folder = next(filter(Path.is_dir, (ROOT / "adapter" / package, ROOT / package)), ROOT / package)
        assert folder.is_dir(), package
        for name in re.findall(r"`([\w/]+)(?:\.py)?`", row):
            path = folder / name
            named = (path, path.with_suffix(".py"), ROOT / "adapter" / f"{name}.py")
            assert any(each.exists() for each in named), f"{package}: {name}"


def test_pages_are_about_the_project_alone() -> None:
    for page in PAGES:
        assert not re.search(r"/work/|\.\./shared", page.read_text()), page.name


def test_tests_that_pages_name_exist() -> None:
    for page in PAGES:
        for path in re.findall(r"`(tests/[\w/.]+\.py)`", page.read_text()):
            assert (ROOT / path).is_file(), (page.name, path)


def test_compatibility_says_how_each_row_is_known() -> None:
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    rows = re.findall(r"^\|(?! [\w, ]* \|[\w ,]*\| known \|)(?!---)(.*)\|$", page, re.MULTILINE)
    assert len(rows) > 25
    for row in rows:
        known = row.rpartition(" | ")[2].strip()
        paths = re.findall(r"`(tests/[\w/.]+|kubectl [^`]+)`", known)
        assert (known.startswith("tried: ") and paths) or re.fullmatch(
            r"by reading: \[[^]]+\]\(https://\S+\)", known
        ), row
