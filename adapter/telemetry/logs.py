"""The log: one line for each record, with a constant message and facts as keys."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from adapter.model import visible

TRACE = 5
"""The level of bodies and of lookups that miss the registry, below DEBUG."""


def facts(**values: object) -> dict[str, dict[str, object]]:
    """Return the `extra` of a log call: ``log.info("series read", extra=facts(series=12))``."""
    return {"facts": values}


def format_time(seconds: float) -> str:
    """Return epoch seconds as RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """One line for each record: time, level, logger, message, facts as ``key=value``, then any traceback.

    A value with blanks, quotes, an equals sign or control characters is quoted as JSON, so that foreign text
    cannot forge a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        parts = [format_time(record.created), record.levelname, f"{record.name}:", record.getMessage()]
        parts += [f"{key}={_render(value)}" for key, value in getattr(record, "facts", {}).items()]
        line = " ".join(parts)
        if not record.exc_info:
            return line
        return f"{line}\n{visible.escape_lines(self.formatException(record.exc_info))}"


def configure_logging(verbosity: int, *, stream: TextIO | None = None) -> None:
    """Send the log of the process to `stream`, by default standard error. Other packages log from WARNING up.

    As in prometheus-adapter, from ``--v=6`` each request is logged and from 8 everything. A second call
    replaces the handler of the first, and no other.
    """
    logging.addLevelName(TRACE, "TRACE")
    handler = _OwnHandler(stream or sys.stderr)
    handler.setFormatter(TextFormatter())
    root = logging.getLogger()
    root.handlers = [other for other in root.handlers if not isinstance(other, _OwnHandler)]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    level = TRACE if verbosity >= 8 else logging.DEBUG if verbosity >= 6 else logging.INFO
    logging.getLogger("adapter").setLevel(level)


class _OwnHandler(logging.StreamHandler[TextIO]):
    """Marks the handler that `configure_logging` replaces."""


def _render(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    plain = text.isprintable() and text.isascii() and not any(mark in text for mark in " \"'=")
    return text if plain and text else json.dumps(text, ensure_ascii=not text.isprintable())
