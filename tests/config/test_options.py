"""The command line of `serve`: pflag's syntax, prometheus-adapter's flags, our own flags, and the checks."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.config import checks, https_options, options, pflag, rules_file
from adapter.config.options import SCALE, SERVE, Options
from adapter.config.pflag import FlagType
from scripts.generate.docs import render_markdown
from tests.support.answers import answers
from tests.support.scripts import Recorded

CONFIG = "--config=rules.yaml"
TABLE = SERVE.table
COMMAND_LINES = Path(__file__).parent / "command-lines"


def parse(*argv: str) -> Options:
    return SERVE.parse([CONFIG, *argv])[0]


def notices(*argv: str) -> tuple[str, ...]:
    return SERVE.parse([CONFIG, *argv])[1]


def refused(*argv: str) -> list[str]:
    with pytest.raises(errors.InputError) as caught:
        SERVE.parse([CONFIG, *argv])
    return [str(fault) for fault in caught.value.faults]


def read(argv: list[str]) -> list[str]:
    """Return what a command line means: what is not the default, notices and faults."""
    try:
        found, notices = SERVE.parse(argv)
    except errors.InputError as error:
        return [f"fault {fault}" for fault in error.faults]
    values = [(field.name, getattr(found, field.name), field.default) for field in dataclasses.fields(found)]
    given_ = [f"{name}: {value!r}" for name, value, default in values if value != default]
    address = checks.split_bind_address(found.health_probe_bind_address)
    return [*given_, f"probes at {address}", *(f"notice {notice}" for notice in notices)]


def test_command_lines(recorded: Recorded) -> None:
    """Below a line after `$ ` is what it means."""
    said: list[str] = []
    for line in COMMAND_LINES.read_text().splitlines():
        said += [line] if line.startswith(("# ", "$ ")) else []
        said += read(shlex.split(line[2:])) if line.startswith("$ ") else []
    recorded(COMMAND_LINES, "".join(f"{line}\n" for line in said))


# --- the table


def test_defaults_of_the_table_are_those_of_options() -> None:
    made = {
        flag.field: flag.type.read(flag.default) for flag in TABLE.values() if flag.field and flag.default
    }
    # the kinds are what is tested
    assert dataclasses.replace(Options(), **made) == Options()
    unset = [flag for flag in TABLE.values() if flag.field and not flag.default]
    assert all(getattr(Options(), flag.field) in ("", ()) for flag in unset)


def test_every_option_has_one_flag_and_every_other_flag_an_effect() -> None:
    fields = [flag.field for flag in TABLE.values() if flag.field]
    assert sorted(fields) == sorted(field.name for field in dataclasses.fields(Options))
    assert {flag for flag in TABLE.values() if not flag.field} == set(options.IGNORED)


UPSTREAM = """
config prometheus-url prometheus-verb prometheus-header prometheus-token-file prometheus-ca-file
prometheus-client-tls-cert-file prometheus-client-tls-key-file prometheus-auth-incluster
prometheus-auth-config metrics-relist-interval metrics-max-age disable-http2 lister-kubeconfig
discovery-interval client-qps client-burst bind-address secure-port cert-dir tls-cert-file
tls-private-key-file tls-cipher-suites tls-min-version tls-sni-cert-key http2-max-streams-per-connection
permit-port-sharing permit-address-sharing authentication-kubeconfig authorization-kubeconfig
authentication-skip-lookup authentication-tolerate-lookup-failure authentication-token-webhook-cache-ttl
client-ca-file requestheader-client-ca-file requestheader-allowed-names requestheader-username-headers
requestheader-group-headers requestheader-extra-headers-prefix authorization-always-allow-paths
authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl audit-policy-file
audit-log-path audit-log-maxage audit-log-maxbackup audit-log-maxsize audit-log-format audit-log-mode
audit-log-batch-max-size audit-log-truncate-enabled audit-webhook-config-file audit-webhook-mode
profiling contention-profiling debug-socket-path enable-priority-and-fairness v vmodule
log-flush-frequency logtostderr alsologtostderr
"""


@pytest.mark.parametrize("name", UPSTREAM.split())
def test_every_upstream_flag_is_accepted(name: str) -> None:
    flag = TABLE[name]
    given_text = {"tls-sni-cert-key": "a.crt,a.key", "requestheader-allowed-names": "a,b"}.get(
        name, flag.default or "x"
    )
    if name in {"tls-cert-file", "tls-private-key-file"}:
        parse("--tls-cert-file=x", "--tls-private-key-file=x")
    elif name == "tls-cipher-suites":
        parse("--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    elif name == "tls-min-version":
        parse("--tls-min-version=VersionTLS13")
    else:
        parse(f"--{name}={given_text}")


def test_names_and_defaults_of_the_election_are_those_of_the_kubernetes_controllers() -> None:
    written = {name: flag.default for name, flag in TABLE.items() if name.startswith("leader-elect")}
    assert written == {
        "leader-elect": "true",
        "leader-elect-lease-duration": "15s",
        "leader-elect-renew-deadline": "10s",
        "leader-elect-retry-period": "2s",
        "leader-elect-resource-lock": "leases",
        "leader-elect-resource-name": "fastpath-scaler",
        "leader-elect-resource-namespace": "",
    }


# --- syntax


@pytest.mark.parametrize(("argv", "field", "value"), answers("config/options", "flags"))
def test_flags_as_pflag_reads_them(argv: list[str], field: str, value: object) -> None:
    assert json.loads(json.dumps(getattr(parse(*argv), field))) == value


@pytest.mark.parametrize(("argv", "said"), answers("config/options", "refused"))
def test_a_refusal_is_one_sentence(argv: list[str], said: str) -> None:
    assert refused(*argv) == [said]


def test_only_tls_1_3_may_go_without_older_suites() -> None:
    found = parse("--tls-cipher-suites=TLS_AES_128_GCM_SHA256", "--tls-min-version=VersionTLS13")
    assert https_options.openssl_cipher_list(found.tls_cipher_suites) == ""


def test_cipher_names_become_openssls_once_each_in_order() -> None:
    names = [
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ]
    names.append("TLS_RSA_WITH_AES_128_CBC_SHA")
    assert https_options.openssl_cipher_list(names) == "ECDHE-RSA-CHACHA20-POLY1305:AES128-SHA"


def test_secrets_are_not_printed() -> None:
    found = parse("--prometheus-url=http://u:geheim@h", "--prometheus-header=Authorization=geheim")
    assert "geheim" not in repr(found)
    assert "geheim" not in "".join(
        refused("--prometheus-url=ftp://u:geheim@h", "--prometheus-header=:\n=geheim")
    )
    assert "geheim" not in "".join(
        refused("--prometheus-headers=Authorization=geheim", "-prometheus-header=geheim")
    )


# --- notices


@pytest.mark.parametrize(("argv", "words"), answers("config/options", "combinations"))
def test_combinations_without_effect_are_said(argv: list[str], words: str) -> None:
    (found,) = notices(*argv)
    assert words in found


# --- help


@pytest.mark.parametrize(("argv", "asked"), answers("config/options", "help"))
def test_help_is_a_flag(argv: list[str], asked: bool) -> None:  # noqa: FBT001 - a table column
    assert (SERVE.help_for(argv) is not None) is asked


def test_previews_appear_with_all_flags_only() -> None:
    for command in (SERVE, SCALE):
        assert "--serve-v1-preview" not in command.render_help()
        assert "--serve-v1-preview" in command.render_help(everything=True)


def test_help_and_documentation_name_every_flag() -> None:
    text, page = SERVE.render_help(everything=True), render_markdown(TABLE)
    for flag in TABLE.values():
        assert f"--{flag.name}" in text
        assert f"--{flag.name}" in page
        assert flag.help.endswith(".")
    assert "  -v, --v level\n        Log level" in text
    assert (
        "  --metrics-relist-interval duration\n        Time between two discoveries of series. (default "
        "10m0s)" in text
    )
    assert "  --strict-config\n" in text
    assert "| `--secure-port port` | `443` | Port to serve HTTPS on; 0 takes any free one. |" in page
    assert all(len(line) <= 100 for line in text.splitlines())
    assert all(line.count(" | ") == 2 for line in page.splitlines() if line.startswith("| `"))


# --- a setting and the rules


@pytest.mark.parametrize(("argv", "rules", "faulty"), answers("config/options", "max age"))
def test_max_age_below_the_relist_interval(argv: list[str], rules: str, faulty: bool) -> None:  # noqa: FBT001 - a table column
    fault = options.check_max_age(parse(*argv), rules_file.parse_rules(rules, "").config)
    assert (fault is not None) is faulty
    if fault:
        assert str(fault) == (
            "--metrics-max-age: 9m59s: expected at least --metrics-relist-interval, which is 10m0s, or "
            "metrics vanish in between"
        )


def test_look_back_is_never_zero() -> None:
    assert Options().look_back == 600.0
    assert Options(metrics_max_age=5.0).look_back == 5.0


# --- any command line

TOKENS = st.sampled_from(
    [
        *(f"--{name}" for name in TABLE),
        *(f"--{name}=" for name in TABLE),
        *["--", "-", "-v", "-h", "--help", "=", "1", "1s", "x,y"],
    ]
)


@given(
    st.lists(st.text(max_size=12) | TOKENS | st.tuples(TOKENS, st.text(max_size=8)).map("".join), max_size=8)
)
def test_any_command_line_gives_options_or_faults(argv: list[str]) -> None:
    SERVE.help_for(argv)
    faults: tuple[errors.Fault, ...] = ()
    found = None
    try:
        found, _ = SERVE.parse(argv)
    except errors.InputError as error:
        faults = error.faults
    assert bool(faults) is (found is None)
    assert all(len(str(fault).splitlines()) == 1 for fault in faults)


@pytest.mark.parametrize("kind", list(FlagType), ids=lambda kind: kind.name)
@given(
    text=st.text(max_size=20)
    | st.from_regex(r"[-+]?0?[xXbBoO_]?[0-9a-f_]{0,6}(MiB|k|s|,|:|=)?", fullmatch=True)
)
def test_any_value_is_read_or_refused(kind: FlagType, text: str) -> None:
    flag = pflag.Flag(name="x", type=kind)
    try:
        flag.type.read(text)
    except ValueError:
        assert kind not in {FlagType.TEXT, FlagType.ARRAY}
