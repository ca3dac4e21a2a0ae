"""The command line of `fastpath serve`: arguments to Options, and the table of flags as help text and documentation.

Here: what values mean, alone and together, and the notices for what is accepted without effect. Not here: syntax (`pflag`),
the flags themselves (`flagtable`), reading of files.

Law: every prometheus-adapter command line is understood as prometheus-adapter understands it; what cannot be honoured is
refused or said once, never passed over in silence; all faults are reported together; no secret appears in a message.
"""

import difflib
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from adapter import errors
from adapter.config import ciphers, leader_flags, pflag, scaler_flags
from adapter.config.flag_table import TABLE
from adapter.config.options import SERVABLE_GROUPS, Options
from adapter.config.pflag import Effect, Flag, Given, Kind, Scanned
from adapter.config.yaml import reader
from adapter.model import durations, pod_networks

_SECRET = frozenset({"prometheus-url", "prometheus-header", "prometheus-query-param"})
"""Flags whose values may hold credentials."""

_WITH_PROXY_FILE = frozenset(
    f"--requestheader-{name}"
    for name in ("allowed-names", "username-headers", "uid-headers", "group-headers", "extra-headers-prefix")
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110's token

_WIDTH = 100
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def asks_for_help(argv: Sequence[str]) -> bool:
    """Say whether the command line has `--help` or `-h` as a flag (and not as the value of another)."""
    return pflag.scan(argv, TABLE).help


def parse_flags(argv: Sequence[str]) -> tuple[Options, tuple[str, ...]]:
    """Return the settings of a command line (without the program's name) and sentences to log once.

    Raises InputError with every fault.
    """
    return build_options(pflag.scan(argv, TABLE))


def build_options(scanned: Scanned) -> tuple[Options, tuple[str, ...]]:
    """Return the settings and notices of a command line that was split into flags of `TABLE`; as `parse_flags`."""
    faults = list(scanned.faults)
    values: dict[str, Any] = {}
    for given in scanned.given:
        fault = _read(given, values)
        if fault:
            faults.append(fault)
    broken = {fault.path for fault in faults}
    options = replace(Options(), **values)
    faults += [fault for fault in _check(options, values) if fault.path not in broken]
    if faults:
        raise errors.InputError(faults)
    attempt = min(options.prometheus_attempt_timeout, options.prometheus_timeout)
    return replace(options, prometheus_attempt_timeout=attempt), _notices(scanned.given, options)


def _read(given: Given, values: dict[str, Any]) -> errors.Fault | None:
    """Add one use of a flag to `values`; return what is wrong with it."""
    flag = given.flag
    try:
        value: Any = pflag.read(flag, given.text)
    except ValueError:
        return _fault(flag, given.text, f"expected {pflag.expectation(flag.kind)}")
    if flag.field:
        added = values.get(flag.field, ()) + value if flag.kind in pflag.REPEATABLE else value
        values[flag.field] = added
    return None


def _fault(flag: Flag, text: str, expected: str) -> errors.Fault:
    shown = "" if flag.name in _SECRET else reader.shown_text(text)
    return errors.Fault(f"--{flag.name}", shown if text else "", expected)


def _check(options: Options, values: dict[str, Any]) -> Iterable[errors.Fault]:
    """Yield what is wrong with values that were read, alone and together."""
    for flag in TABLE.values():
        check = _CHECKS.get(flag.name)
        value = getattr(options, flag.field) if flag.field else None
        if check:
            expected = check(value)
            if expected:
                yield _fault(flag, _written(flag, value), expected)
    if options.prometheus_auth_incluster and options.prometheus_auth_config:
        yield errors.Fault(
            "--prometheus-auth-config", "", "expected not to be given with --prometheus-auth-incluster"
        )
    if options.prometheus_token_file and options.prometheus_basic_auth_file:
        yield errors.Fault(
            "--prometheus-basic-auth-file", "", "expected not to be given with --prometheus-token-file"
        )
    if bool(options.tls_cert_file) != bool(options.tls_private_key_file):
        missing = "--tls-private-key-file" if options.tls_cert_file else "--tls-cert-file"
        yield errors.Fault(missing, "", "missing: certificate and key are given together")
    if fault := leader_flags.check_times(options):
        yield fault
    suites = options.tls_cipher_suites
    if (
        suites
        and options.tls_min_version != "VersionTLS13"
        and not _suites(suites)
        and not ciphers.openssl_cipher_list(suites)
    ):
        expected = "expected a suite for TLS 1.2 that is still built; for TLS 1.3 alone give --tls-min-version=VersionTLS13"
        yield _fault(TABLE["tls-cipher-suites"], ",".join(suites), expected)
    if (
        "prometheus_attempt_timeout" in values
        and options.prometheus_attempt_timeout > options.prometheus_timeout > 0
    ):
        total = durations.format_go_duration(options.prometheus_timeout)
        flag = TABLE["prometheus-attempt-timeout"]
        text = _written(flag, options.prometheus_attempt_timeout)
        yield _fault(flag, text, f"expected at most --prometheus-timeout, which is {total}")


def _written(flag: Flag, value: object) -> str:
    """Return a value as one would write it on the command line."""
    if flag.kind is Kind.DURATION and isinstance(value, float):
        return durations.format_go_duration(value)
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return str(value)


def _config(paths: Any) -> str:
    return "" if paths and all(paths) else "expected the path of a rules file, or of a folder of them"


def _url(url: Any) -> str:
    try:
        parts = urlsplit(url)
        # urlsplit drops line breaks in silence, so look at what was written
        good = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and url.isprintable()
        )
        good = good and " " not in url and not _BROKEN_ESCAPE.search(url)
    except ValueError:
        good = False
    return "" if good else "expected a URL such as http://prometheus.monitoring.svc:9090"


def _verb(verb: Any) -> str:
    return "" if verb in ("GET", "POST") else "expected GET or POST"


def _open_paths(paths: Any) -> str:
    if any("*" in path[:-1] for path in paths):
        return "expected a * at the end of a path only"
    return "" if all(paths) else "expected paths such as /healthz, none of them empty"


def _headers(names: Any) -> str:
    good = all(_HEADER_NAME.fullmatch(name.strip()) for name in names)
    return "" if good else "expected names of headers such as x-remote-user"


def _groups(groups: Any) -> str:
    for group in groups:
        if group in SERVABLE_GROUPS:
            continue
        near = difflib.get_close_matches(group, SERVABLE_GROUPS, n=1, cutoff=0.3)
        return f"expected {', '.join(SERVABLE_GROUPS)}" + (f"; did you mean {near[0]}?" if near else "")
    return ""


def _suites(names: Any) -> str:
    unknown = [name for name in names if name not in ciphers.OPENSSL_NAMES]
    if unknown:
        near = difflib.get_close_matches(unknown[0], ciphers.OPENSSL_NAMES, n=1)
        asked = (
            f", did you mean {near[0]}?"
            if near
            else ", expected Go's names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        )
        return f"{reader.shown_text(unknown[0])} is no cipher suite{asked}"
    return ""


def _min_version(version: Any) -> str:
    return (
        "" if version in ("", *ciphers.MIN_VERSIONS) else f"expected one of {', '.join(ciphers.MIN_VERSIONS)}"
    )


def _above_zero(seconds: Any) -> str:
    return "" if seconds > 0 else "expected a duration above 0"


def _positive(number: Any) -> str:
    return "" if number > 0 else "expected a number above 0"


def _pod_networks(cidrs: Any) -> str:
    try:
        pod_networks.parse_networks(cidrs)
    except ValueError as error:
        return str(error)
    return ""


def _not_negative(seconds: Any) -> str:
    return "" if seconds >= 0 else "expected 0 or more"


_CHECKS: dict[str, Callable[[Any], str]] = {
    "config": _config,
    "prometheus-url": _url,
    "prometheus-verb": _verb,
    "authentication-token-webhook-cache-ttl": _not_negative,
    "authorization-webhook-cache-authorized-ttl": _not_negative,
    "authorization-webhook-cache-unauthorized-ttl": _not_negative,
    "authorization-always-allow-paths": _open_paths,
    "requestheader-username-headers": _headers,
    "requestheader-uid-headers": _headers,
    "requestheader-group-headers": _headers,
    "requestheader-extra-headers-prefix": _headers,
    "serve-groups": _groups,
    "tls-cipher-suites": _suites,
    "tls-min-version": _min_version,
    "metrics-relist-interval": _above_zero,
    "metrics-max-age": _not_negative,
    "metrics-ttl": _not_negative,
    "metrics-max-answer-age": _not_negative,
    "scrape-max-per-second": _positive,
    "scrape-pod-cidrs": _pod_networks,
    "prometheus-max-queries-per-second": leader_flags.check_rate,
    "horizontal-pod-autoscaler-sync-period": _above_zero,
    "horizontal-pod-autoscaler-tolerance": scaler_flags.check_not_negative,
    "horizontal-pod-autoscaler-downscale-stabilization": _not_negative,
    "horizontal-pod-autoscaler-cpu-initialization-period": _not_negative,
    "horizontal-pod-autoscaler-initial-readiness-delay": _not_negative,
    "local-address": scaler_flags.check_local_address,
    "health-probe-bind-address": scaler_flags.check_bind_address,
    "metrics-bind-address": scaler_flags.check_bind_address,
    "leader-elect-lease-duration": leader_flags.check_lease_duration,
    "leader-elect-retry-period": _above_zero,
    "leader-elect-resource-lock": leader_flags.check_lock,
    "leader-elect-resource-name": leader_flags.check_name,
    "shard": leader_flags.check_shard,
    "kube-api-write-qps": leader_flags.check_rate,
    "prometheus-timeout": _above_zero,
    "prometheus-attempt-timeout": _above_zero,
    "shutdown-delay": _not_negative,
    "v": _not_negative,
}
"""What a value must be beyond its kind: flag → function that returns the sentence of the fault, "" when all is well."""


def _notices(given: Iterable[Given], options: Options) -> tuple[str, ...]:
    names: dict[Effect, dict[str, None]] = {}
    for flag, _ in given:
        names.setdefault(flag.effect, {})[f"--{flag.name}"] = None
    sentences = {
        Effect.NONE: "flags without effect here",
        Effect.REMOVED: "flags that prometheus-adapter removed in v0.11, without effect here",
    }
    notices = [f"{text}: {', '.join(names[effect])}" for effect, text in sentences.items() if effect in names]
    idle = [name for name in names.get(Effect.USED, {}) if name in _WITH_PROXY_FILE]
    if idle and not options.requestheader_client_ca_file:
        notices.append(
            f"without --requestheader-client-ca-file the cluster's ConfigMap says what these flags say: {', '.join(idle)}"
        )
    client = options.prometheus_client_tls_cert_file, options.prometheus_client_tls_key_file
    if any(client) and not (all(client) and options.prometheus_ca_file):
        notices.append(
            "the client certificate for Prometheus is not used: it needs --prometheus-client-tls-cert-file, "
            "--prometheus-client-tls-key-file and --prometheus-ca-file"
        )
    if options.prometheus_ca_file and (options.prometheus_auth_incluster or options.prometheus_auth_config):
        notices.append("--prometheus-ca-file wins: the credentials of the prometheus-auth flags are not used")
    if options.prometheus_verb == "GET" and urlsplit(options.prometheus_url).query:
        notices.append(
            "the query text of --prometheus-url is not sent with GET: use --prometheus-query-param"
        )
    if options.metrics_ttl > options.metrics_max_answer_age:
        notices.append(
            "--metrics-ttl is above --metrics-max-answer-age: answers are used again up to the latter"
        )
    return tuple(notices)


def _groups_of_flags(table: Mapping[str, Flag]) -> dict[str, list[Flag]]:
    groups: dict[str, list[Flag]] = {}
    for flag in table.values():
        groups.setdefault(flag.group, []).append(flag)
    return groups


def _usage(flag: Flag) -> str:
    word = flag.metavar or flag.kind.value
    short = f"-{flag.shorthand}, " if flag.shorthand else ""
    return f"{short}--{flag.name}" + (f" {word}" if word else "")


def _has_default(flag: Flag) -> bool:
    return flag.default not in ("", "false")


def render_help(verb: str = "serve") -> str:
    """Return the text of `fastpath VERB --help` of a verb that takes all these flags."""
    return "\n".join([f"Usage: fastpath {verb} --config=PATH [flags]", "", *help_lines(TABLE)])


def help_lines(table: Mapping[str, Flag]) -> list[str]:
    """Return flags with their help texts, one block for each group."""
    lines: list[str] = []
    for group, flags in _groups_of_flags(table).items():
        lines.append(f"{group}:")
        for flag in flags:
            text = flag.help + (f" (default {flag.default})" if _has_default(flag) else "")
            lines.append(f"  {_usage(flag)}")
            lines += textwrap.wrap(text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
        lines.append("")
    return lines


def render_markdown(table: Mapping[str, Flag] = TABLE) -> str:
    """Return flags as tables in Markdown, one for each group; by default those of `fastpath serve`."""
    lines = []
    for group, flags in _groups_of_flags(table).items():
        lines += [f"## {group}", "", "| flag | default | meaning |", "| --- | --- | --- |"]
        for flag in flags:
            default = f"`{flag.default}`" if flag.default else ""
            lines.append(f"| `{_usage(flag)}` | {default} | {flag.help.replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)
