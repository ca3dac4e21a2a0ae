"""Flags of prometheus-adapter that are accepted without effect, so that its command lines start Fastpath.

Flags that its v0.11 removed are among them, because manifests in use carry them. Their values are checked.
"""

from collections.abc import Iterator

from adapter.config.option_fields import REMOVED, WITHOUT_EFFECT
from adapter.config.pflag import Flag, FlagType


def _flags() -> Iterator[Flag]:
    yield from _rows(
        WITHOUT_EFFECT,
        (
            "client-qps",
            FlagType.FLOAT,
            "5",
            "API server client: requests per second; there is no such throttle here.",
        ),
        ("client-burst", FlagType.INT, "10", "API server client: burst; there is no such throttle here."),
        (
            "discovery-interval",
            FlagType.DURATION,
            "0s",
            "No effect in prometheus-adapter either; unknown kinds are looked up on demand.",
        ),
        ("disable-http2", FlagType.BOOL, "false", "This server has no HTTP/2."),
        ("disable-http2-serving", FlagType.BOOL, "false", "This server has no HTTP/2."),
        ("http2-max-streams-per-connection", FlagType.INT, "0", "This server has no HTTP/2."),
        ("profiling", FlagType.BOOL, "true", "There are no Go profiles here."),
        ("contention-profiling", FlagType.BOOL, "false", "There are no Go profiles here."),
        ("debug-socket-path", FlagType.TEXT, "", "There are no Go profiles here."),
        ("enable-priority-and-fairness", FlagType.BOOL, "false", "Requests are not queued by priority here."),
        ("vmodule", FlagType.TEXT, "", "Log levels by Go file."),
        ("log-flush-frequency", FlagType.DURATION, "5s", "Logs are written at once here."),
        ("audit-policy-file", FlagType.TEXT, "", "Audit policy; there is no audit log here."),
        ("audit-log-path", FlagType.TEXT, "", "Audit log file."),
        ("audit-log-compress", FlagType.BOOL, "false", "Compress old audit logs."),
        ("audit-log-format", FlagType.TEXT, "json", "Audit log format."),
        ("audit-log-maxage", FlagType.INT, "0", "Days to keep audit logs."),
        ("audit-log-maxbackup", FlagType.INT, "0", "Number of audit logs to keep."),
        ("audit-log-maxsize", FlagType.INT, "0", "Megabytes of an audit log."),
        ("audit-log-version", FlagType.TEXT, "audit.k8s.io/v1", "Version of logged audit events."),
        ("audit-webhook-config-file", FlagType.TEXT, "", "Kubeconfig of the audit webhook."),
        ("audit-webhook-initial-backoff", FlagType.DURATION, "10s", "First retry of the audit webhook."),
        ("audit-webhook-version", FlagType.TEXT, "audit.k8s.io/v1", "Version of sent audit events."),
    )
    for backend, mode, size, wait, throttle, qps, burst in (
        ("log", "blocking", "1", "0s", "false", "0", "0"),
        ("webhook", "batch", "400", "30s", "true", "10", "15"),
    ):
        prefix = f"audit-{backend}"
        yield from _rows(
            WITHOUT_EFFECT,
            (f"{prefix}-mode", FlagType.TEXT, mode, "When audit events are sent."),
            (f"{prefix}-batch-buffer-size", FlagType.INT, "10000", "Audit events kept before sending."),
            (f"{prefix}-batch-max-size", FlagType.INT, size, "Audit events in a batch."),
            (f"{prefix}-batch-max-wait", FlagType.DURATION, wait, "Time before a batch is sent."),
            (f"{prefix}-batch-throttle-enable", FlagType.BOOL, throttle, "Limit the rate of batches."),
            (f"{prefix}-batch-throttle-qps", FlagType.FLOAT, qps, "Batches per second."),
            (f"{prefix}-batch-throttle-burst", FlagType.INT, burst, "Batches at once."),
            (f"{prefix}-truncate-enabled", FlagType.BOOL, "false", "Cut large audit events."),
            (f"{prefix}-truncate-max-batch-size", FlagType.INT, "10485760", "Bytes of a batch."),
            (f"{prefix}-truncate-max-event-size", FlagType.INT, "102400", "Bytes of an audit event."),
        )
    yield from _rows(
        REMOVED,
        ("add_dir_header", FlagType.BOOL, "false", "Old logging flag."),
        ("alsologtostderr", FlagType.BOOL, "false", "Old logging flag."),
        ("log_backtrace_at", FlagType.TEXT, ":0", "Old logging flag."),
        ("log_dir", FlagType.TEXT, "", "Old logging flag."),
        ("log_file", FlagType.TEXT, "", "Old logging flag."),
        ("log_file_max_size", FlagType.INT, "1800", "Old logging flag."),
        ("logtostderr", FlagType.BOOL, "true", "Old logging flag."),
        ("one_output", FlagType.BOOL, "false", "Old logging flag."),
        ("skip_headers", FlagType.BOOL, "false", "Old logging flag."),
        ("skip_log_headers", FlagType.BOOL, "false", "Old logging flag."),
        ("stderrthreshold", FlagType.TEXT, "2", "Old logging flag."),
    )


def _rows(group: str, *rows: tuple[str, FlagType, str, str]) -> Iterator[Flag]:
    for name, type_, default, text in rows:
        yield Flag(name=name, type=type_, default=default, help=text, group=group)


IGNORED = tuple(_flags())
