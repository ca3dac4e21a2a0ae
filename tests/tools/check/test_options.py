import pytest

from adapter import errors
from adapter.config.options import SERVE
from fastpath_tools.check.options import COMMAND, CheckOptions
from scripts.generate.docs import render_markdown


def parse(*arguments: str) -> CheckOptions:
    return COMMAND.parse(arguments)[0]


def faults_of(*arguments: str) -> list[str]:
    with pytest.raises(errors.InputError) as caught:
        COMMAND.parse(arguments)
    return [str(fault) for fault in caught.value.faults]


def test_defaults() -> None:
    assert parse("a.yaml") == CheckOptions(files=("a.yaml",), config=("a.yaml",))


def test_every_flag() -> None:
    found = parse(
        *("a.yaml", "--why", "load", "--config=folder", "--prometheus-url=http://p:9090", "-", "-o", "json"),
        *("--object=pod/shop/web-0", "--selector=a=b", "--metric-selector=c", "--scrape-interval=1m30s"),
        *("--", "--odd.yaml"),
    )
    assert found == CheckOptions(
        files=("a.yaml", "-", "--odd.yaml"),
        config=("a.yaml", "-", "--odd.yaml", "folder"),
        prometheus_url="http://p:9090",
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
    assert parse("a.yaml", "--prometheus-url=https://localhost").prometheus_url == "https://localhost"
    assert not parse("a.yaml").prometheus_url


def test_a_command_line_that_serves_can_be_checked() -> None:
    found, notices = COMMAND.parse(
        [
            "--config=a.yaml",
            "--bind-address=0.0.0.0",
            "--secure-port=x",
            "--client-qps=5",
            "--logtostderr",
            "--v=6",
        ]
    )
    assert found == CheckOptions(config=("a.yaml",), verbosity=6)
    assert notices == ()


def test_notices_are_those_of_serve() -> None:
    _, notices = COMMAND.parse(["a.yaml", "--prometheus-url=http://p:9090?x=y"])
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
        (["a", "--scrape-interval=0s"], ['--scrape-interval: "0s": expected a duration above 0']),
        (["a", "--print-config=x"], ['--print-config: "x": expected true or false']),
        (["a", "--why=m"], ["--why: m: expected --prometheus-url too, to read the series"]),
        (["a", "--object=x"], ["--object: x: expected --why METRIC too"]),
        (["a", "--selector=x"], ["--selector: x: expected --object too"]),
        (["a", "--metric-selector=x"], ["--metric-selector: x: expected --object too"]),
        (
            ["a", "--print-config", "--output=json"],
            ["--output: json: cannot be combined with --print-config"],
        ),
        (
            ["--prometheus-verb=PUT", "--object=x"],
            [
                '--prometheus-verb: "PUT": expected GET or POST',
                "FILE: missing: expected rules files, chart values, folders of them, or - for standard input",
                "--object: x: expected --why METRIC too",
            ],
        ),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith(("a", "--")) else "",
)
def test_faults(arguments: list[str], faults: list[str]) -> None:
    assert faults_of(*arguments) == faults


def test_help() -> None:
    assert COMMAND.help_for(["a.yaml", "--help"])
    assert COMMAND.help_for(["--why", "--help"]) is None
    text = COMMAND.help_for(["-h"])
    assert text is not None
    assert text.startswith("Usage: fastpath check FILE... [flags]\n")
    assert "--bind-address" not in text
    everything = COMMAND.help_for(["--help-all"])
    assert everything is not None
    assert all(f"--{name}" in everything for name in (*COMMAND.table, "bind-address", "client-qps"))
    assert all(len(line) <= 120 for line in text.splitlines())


def test_every_flag_of_serve_is_accepted() -> None:
    assert COMMAND.table.keys() >= SERVE.table.keys()
    assert "| `--why metric` |" in render_markdown(COMMAND.table)
