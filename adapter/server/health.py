"""livez, readyz and healthz: named checks, and the text that kubelets and people read.

The texts are those of Kubernetes' API servers. The lists are open to everyone, so they name the checks that
fail and withhold the reasons, which are logged once for each change. The path of a single check gives its
reason, because authorization covers that path.

An informational check has a line, and fails nothing. Prometheus is one: an unready pod takes the APIService
down, and while an APIService is down no namespace of the cluster can be deleted.
"""

import json
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adapter.server.api import query_string
from adapter.telemetry import logs

log = logging.getLogger(__name__)


class Check(NamedTuple):
    """A named check. `find_fault` is quick and returns None on success, else the reason in a few words."""

    name: str
    find_fault: Callable[[], str | None]
    informational: bool = False


class HealthAnswer(NamedTuple):
    status: int
    text: str


PING = Check("ping", lambda: None)
"""The check that always succeeds; upstream begins every list with it."""


class Health:
    """The three lists of checks. `healthz` has those of livez: a kubelet may restart a pod because of it."""

    def __init__(self, *, livez: Sequence[Check] = (), readyz: Sequence[Check] = ()) -> None:
        self._lists = {
            "healthz": (PING, *livez),
            "livez": (PING, *livez),
            "readyz": (PING, *readyz),
        }
        self._logged: dict[str, dict[str, str]] = {endpoint: {} for endpoint in self._lists}

    def answer(self, segments: Sequence[str], query: str) -> HealthAnswer | None:
        """Answer a decoded path (``readyz`` or ``readyz/NAME``) with its raw query; None for an unknown path.

        `verbose` asks for the list of checks, which a failure always shows; each `exclude` leaves one out.
        """
        if not segments or segments[0] not in self._lists:
            return None
        endpoint, name = segments[0], "/".join(segments[1:])
        if len(segments) == 1:
            return self._answer_all(endpoint, query)
        for check in self._lists[endpoint]:
            if check.name == name:
                fault = _run(check)
                if fault is not None:
                    return HealthAnswer(500, f"internal server error: {fault}\n")
                return HealthAnswer(200, "ok")
        return None

    def _answer_all(self, endpoint: str, query: str) -> HealthAnswer:
        excluded = set(query_string.query_values(query, "exclude")) - {""}
        partial = bool(excluded)
        lines: list[str] = []
        failed: dict[str, str] = {}
        for check in self._lists[endpoint]:
            if check.name in excluded:
                excluded.remove(check.name)
                lines.append(f"[+]{check.name} excluded: ok\n")
                continue
            fault = _run(check)
            if fault is None:
                lines.append(f"[+]{check.name} ok\n")
            elif check.informational:
                lines.append(f"[-]{check.name} failed: reason withheld (informational)\n")
            else:
                failed[check.name] = fault
                lines.append(f"[-]{check.name} failed: reason withheld\n")
        if excluded:
            names = ",".join(json.dumps(name) for name in sorted(excluded))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if not partial:
            self._say(endpoint, failed)
        if failed:
            return HealthAnswer(500, f"{''.join(lines)}{endpoint} check failed\n")
        if "verbose" in query_string.parameter_names(query):
            return HealthAnswer(200, f"{''.join(lines)}{endpoint} check passed\n")
        return HealthAnswer(200, "ok")

    def _say(self, endpoint: str, failed: dict[str, str]) -> None:
        """Log the changes since the last answer: these paths are polled every few seconds."""
        known = self._logged[endpoint]
        if failed == known:
            return
        self._logged[endpoint] = failed
        for name, fault in failed.items():
            if known.get(name) != fault:
                log.warning(
                    "health check failed", extra=logs.facts(endpoint=endpoint, check=name, reason=fault)
                )
        for name in known.keys() - failed.keys():
            log.info("health check passed again", extra=logs.facts(endpoint=endpoint, check=name))


def _run(check: Check) -> str | None:
    try:
        return check.find_fault()
    except Exception as error:  # an exception in a check is a failure like any other
        log.exception("a health check raised an exception", extra=logs.facts(check=check.name))
        return f"{type(error).__name__}: {error}"
