"""Unexpected errors: what is wrong about one object stays with that object.

A loop over the objects of many tenants contains the work on each of them: an exception that no code expects
is counted, logged with its traceback, and the loop goes on with the next object. The log has it once for each
object and type of exception, since a loop meets the same object again a second later.
"""

import contextlib
import logging
from collections.abc import Iterator

from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring

_log = logging.getLogger(__name__)

_REMEMBERED = 10_000
"""Of so many errors it is known that they were logged."""

_SUBJECT_LENGTH = 200


class Defects:
    """The unexpected errors of a process."""

    def __init__(self, monitoring: Monitoring) -> None:
        self._count = monitoring.scaler_defects
        self._logged: dict[int, None] = {}

    def note(self, message: str, error: Exception, subject: object = "") -> None:
        """Count an error, and log it unless it repeats. `message` is constant, `subject` names the object."""
        self._count.inc()
        text = str(subject)[:_SUBJECT_LENGTH]
        seen = hash((message, text, type(error)))
        if seen in self._logged:
            return
        if len(self._logged) >= _REMEMBERED:
            del self._logged[next(iter(self._logged))]
        self._logged[seen] = None
        _log.error(message, exc_info=error, extra=facts(**({"subject": text} if text else {})))

    @contextlib.contextmanager
    def contain(self, message: str, subject: object = "") -> Iterator[None]:
        """Note an error of the block, which ends there, in place of raising it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the work on other objects goes on whatever it is
            self.note(message, error, subject)
