from adapter.config.options import SERVE
from fastpath_tools.check.options import COMMAND, CheckOptions
from scripts.generate.docs import render_markdown


def parse(*arguments: str) -> CheckOptions:
    return COMMAND.parse(arguments)[0]


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
