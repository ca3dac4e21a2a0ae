import pytest

from adapter import errors
from adapter.cli.check import flags as checkflags
from adapter.cli.check.flags import CheckOptions
from adapter.config import flag_table, flags
from adapter.config.options import Options


def parse(*arguments: str) -> CheckOptions:
    return checkflags.parse_check(arguments)[0]


def faults_of(*arguments: str) -> list[str]:
    with pytest.raises(errors.InputError) as caught:
        checkflags.parse_check(arguments)
    return [str(fault) for fault in caught.value.faults]


def test_defaults() -> None:
    assert parse("a.yaml") == CheckOptions(files=("a.yaml",), options=Options(config=("a.yaml",)))


def test_every_flag() -> None:
    found = parse(
        *("a.yaml", "--why", "load", "--config=folder", "--prometheus-url=http://p:9090", "-", "-o", "json"),
        *("--object=pod/shop/web-0", "--selector=a=b", "--metric-selector=c", "--scrape-interval=1m30s"),
        *("--", "--odd.yaml"),
    )
    assert found == CheckOptions(
        files=("a.yaml", "-", "--odd.yaml", "folder"),
        options=Options(config=("a.yaml", "-", "--odd.yaml", "folder"), prometheus_url="http://p:9090"),
        asks_prometheus=True,
        why="load",
        object="pod/shop/web-0",
        selector="a=b",
        metric_selector="c",
        scrape_interval=90.0,
        output="json",
    )


def test_print_config() -> None:
    assert parse("--print-config", "a.yaml").print_config
    assert not parse("--print-config=false", "a.yaml").print_config


def test_the_default_address_may_be_asked_for() -> None:
    assert parse("a.yaml", "--prometheus-url=https://localhost").asks_prometheus
    assert not parse("a.yaml").asks_prometheus


def test_a_command_line_that_serves_can_be_checked() -> None:
    found, notices = checkflags.parse_check(
        [
            "--config=a.yaml",
            "--bind-address=0.0.0.0",
            "--secure-port=x",
            "--client-qps=5",
            "--logtostderr",
            "--v=6",
        ]
    )
    assert found.options == Options(config=("a.yaml",), verbosity=6)
    assert notices == ()


def test_notices_are_those_of_serve() -> None:
    _, notices = checkflags.parse_check(["a.yaml", "--prometheus-url=http://p:9090?x=y"])
    assert notices == (
        "the query text of --prometheus-url is not sent with GET: use --prometheus-query-param",
    )


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ([], ["FILE: missing: expected rules files, chart values, folders of them, or - for standard input"]),
        (["a", "--wy=x"], ["--wy: unknown flag, did you mean --why?"]),
        (["a", "--output=yaml"], ['--output: "yaml": expected text or json']),
        (
            ["a", "--scrape-interval=1"],
            ['--scrape-interval: "1": expected a Go duration such as 30s or 1m30s'],
        ),
        (["a", "--scrape-interval=0s"], ["--scrape-interval: expected a duration above 0"]),
        (["a", "--print-config=x"], ['--print-config: "x": expected true or false']),
        (["a", "--why=m"], ["--why: m: expected --prometheus-url too: the answer lies in Prometheus"]),
        (["a", "--object=x"], ["--object: x: expected --why METRIC too"]),
        (["a", "--selector=x"], ["--selector: x: expected --object too"]),
        (["a", "--metric-selector=x"], ["--metric-selector: x: expected --object too"]),
        (
            ["a", "--print-config", "--output=json"],
            ["--output: json: expected not to be given with --print-config"],
        ),
        (
            ["--prometheus-verb=PUT", "--object=x"],
            [
                "FILE: missing: expected rules files, chart values, folders of them, or - for standard input",
                '--prometheus-verb: "PUT": expected GET or POST',
                "--object: x: expected --why METRIC too",
            ],
        ),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith(("a", "--")) else "",
)
def test_faults(arguments: list[str], faults: list[str]) -> None:
    assert faults_of(*arguments) == faults


def test_help() -> None:
    assert checkflags.asks_for_help(["a.yaml", "--help"])
    assert checkflags.asks_for_help(["-h"])
    assert not checkflags.asks_for_help(["--why", "--help"])
    text = checkflags.render_help()
    assert text.startswith("Usage: fastpath check FILE... [flags]\n")
    assert all(f"--{name}" in text for name in checkflags.TABLE)
    assert "--bind-address" not in text
    assert all(len(line) <= 120 for line in text.splitlines())


def test_own_flags_take_no_name_of_serve() -> None:
    assert not checkflags.OWN.keys() & flag_table.TABLE.keys()
    assert "| `--why metric` |" in flags.render_markdown(checkflags.OWN)
