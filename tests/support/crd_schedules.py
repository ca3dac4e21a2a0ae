"""The CustomResourceDefinition of FastPathSchedule; `crd` writes its file.

The schema refuses what a document can be refused for without the tz database and the meaning of cron fields.
tests/bounds/schedule/test_schema.py compares it with the program. What only the program refuses stands in
the status.
"""

from adapter.bounds.schedule import documents
from adapter.model.timestamps import SECOND
from tests.support import crd_parts as parts
from tests.support.crd_parts import JSON

PATH = parts.FOLDER / "fastpathschedules.yaml"

_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"
_CLOCK_OR_MIDNIGHT = f"({_CLOCK}|24:00(:00)?)"


# --- cron ------------------------------------------------------------------------------------------------


def _cron_field(number: str, names: str = "", *others: str) -> str:
    """Return a field: a list of values, ranges and steps; `others` are its special values."""
    value = f"(0*{number}|{names})" if names else f"0*{number}"
    term = rf"(\*|{value}(-{value})?)(/0*[1-9][0-9]*)?"
    return f"({'|'.join([term, *others])})(,({'|'.join([term, *others])}))*"


_MONTHS = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_WEEKDAYS = "SUN|MON|TUE|WED|THU|FRI|SAT"
_CRON = r"\s+".join(
    [
        _cron_field("[0-5]?[0-9]"),
        _cron_field("(1?[0-9]|2[0-3])"),
        _cron_field("([1-9]|[12][0-9]|3[01])", "", "LW?(/0*[1-9][0-9]*)?"),
        _cron_field("([1-9]|1[0-2])", _MONTHS),
        _cron_field("[0-7]", _WEEKDAYS, "0*[0-7]L", f"(0*[0-7]|{_WEEKDAYS})#0*[1-5]"),
    ]
)


# --- spec ------------------------------------------------------------------------------------------------


# A finer part of a second is left to the program: no rule within the cost limit finds it.
_WHOLE = parts.rule("duration(self).getMilliseconds() % 1000 == 0", "must be whole seconds")

# The name is shown to people. The program reads objects that an older schema let through as they are.
_VISIBLE = parts.matching(
    r"[^\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]*",
    "must have no control characters, and no invisible ones that change the direction of text or a line",
)


def _clock(about: str, pattern: str, latest: str) -> JSON:
    rule = parts.matching(pattern, f"must be HH:MM or HH:MM:SS, from 00:00 to {latest}")
    return parts.text(about, rule, maxLength=8)


def _local(about: str, clock: str) -> JSON:
    known = parts.matching(
        f"{parts.DATE}T{clock}",
        "must be a local time without offset such as 2026-11-27T00:00, or 2026-11-27T00:00:00",
    )
    years = parts.rule("self >= '1971' && self < '9999'", "must be of a year from 1971 to 9998")
    return parts.text(about, known, years, maxLength=19)


def _with_seconds(field: str, size: int) -> str:
    return f"(self.{field}.size() == {size} ? self.{field} + ':00' : self.{field})"


def _windows() -> JSON:
    named = "name is the name of the window, unique in the schedule. Status and events show it."
    properties = {
        "name": parts.text(named, _VISIBLE, minLength=1),
        "days": parts.list_(
            "days are the days on which a window with from and to begins. Defaults to every day.",
            parts.choice("A day.", *documents.DAYS),
            minItems=1,
        ),
        "from": _clock(
            "from is when the window begins on each of the days, as local time such as 08:00.",
            _CLOCK,
            "23:59:59",
        ),
        "to": _clock(
            "to is when the window ends, as local time. A time earlier than from is on the next day.",
            _CLOCK_OR_MIDNIGHT,
            "24:00",
        ),
        "cron": parts.text(
            "cron is when the window begins, as a cron expression in local time: "
            "minute, hour, day of the month, month, day of the week.",
            parts.rule(
                rf"self.matches('^(?i)\\s*{_escaped(_CRON)}\\s*$')",
                "must be a cron expression of five fields such as 0 22 28-31 * *",
            ),
            maxLength=512,
        ),
        "for": parts.duration(
            "for is how long a window with cron lasts in elapsed time, as a duration such as 8h.",
            (SECOND, documents.LONGEST_FOR),
            _WHOLE,
        ),
        "start": _local(
            "start is when a window that occurs once begins, as local time without offset.", _CLOCK
        ),
        "end": _local(
            "end is when a window that occurs once ends, as local time without offset. 24:00 is allowed.",
            _CLOCK_OR_MIDNIGHT,
        ),
        "minReplicas": parts.count("minReplicas is the least minReplicas of the targets in the window.", 0),
        "maxReplicas": parts.count(
            "maxReplicas is the greatest maxReplicas of the targets in the window.", 0
        ),
    }
    first, last = _with_seconds("start", 16), _with_seconds("end", 16)
    begin, end = _with_seconds("from", 5), _with_seconds("to", 5)
    rules = [
        parts.rule(
            "has(self.minReplicas) || has(self.maxReplicas)", "needs minReplicas, maxReplicas, or both"
        ),
        parts.rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas must be at most maxReplicas",
        ),
        parts.rule(
            "[has(self.from) || has(self.to), has(self.cron) || has(self.__for__), has(self.start) || "
            "has(self.end)].filter(given, given).size() == 1",
            "needs one of: from and to, cron and for, start and end",
        ),
        parts.rule("has(self.from) == has(self.to)", "from and to need each other"),
        parts.rule("has(self.cron) == has(self.__for__)", "cron and for need each other"),
        parts.rule("has(self.start) == has(self.end)", "start and end need each other"),
        parts.rule("!has(self.days) || has(self.from)", "days belong to a window with from and to"),
        parts.rule(
            f"!has(self.from) || !has(self.to) || {begin} != {end}",
            "to must be another time than from; 00:00 to 24:00 is the whole day",
        ),
        # Texts of this form sort as times; an end at 24:00 sorts before the next day.
        parts.rule(f"!has(self.start) || !has(self.end) || {first} < {last}", "end must be after start"),
    ]
    items = parts.object_("A window of local time and its bounds.", properties, "name", *rules)
    about = (
        "windows are the times in which bounds apply. Where windows overlap, "
        "the largest floor and the smallest ceiling apply; where "
        "the floor is above the ceiling, the floor applies."
    )
    return parts.list_(about, items, minItems=1, maxItems=documents.MOST_WINDOWS) | _by("name")


def _escaped(pattern: str) -> str:
    """Return a pattern as it stands in a string of CEL."""
    return pattern.replace("\\", "\\\\")


def _by(*keys: str) -> JSON:
    """Return what makes a list a map: a second item of the same key is refused."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def _targets() -> JSON:
    properties = {
        "kind": parts.choice(
            "kind is HorizontalPodAutoscaler or FastPathAutoscaler.", *documents.TARGET_KINDS
        ),
        "name": parts.text("name is the name of the autoscaler.", minLength=1),
    }
    items = parts.object_("An autoscaler in the namespace of the schedule.", properties, "kind name")
    about = (
        "targets are the autoscalers that the bounds apply to. A "
        "HorizontalPodAutoscaler has to be boosted, and gets the "
        "floors alone."
    )
    return parts.list_(about, items, minItems=1, maxItems=documents.MOST_TARGETS) | _by("kind", "name")


def _spec() -> JSON:
    zone = parts.time_zone(
        "timeZone is the time zone of all local times, by its name in the tz database, such as Europe/Berlin."
    )
    ready = parts.choice(
        "ready is when the floor is raised: AtStart raises it when a window "
        "begins. ByStart raises it earlier, by the time that pods "
        "were seen to take to be Ready, so that they are Ready when the window begins.",
        documents.AT_START,
        documents.BY_START,
        default=documents.AT_START,
    )
    date = parts.date("A local date.")
    properties = {
        "targets": _targets(),
        "timeZone": zone,
        "ready": ready,
        "windows": _windows(),
        "except": parts.list_(
            "except are local dates on which no window with from or cron begins.",
            date,
            maxItems=documents.MOST_EXCEPTIONS,
        ),
    }
    return parts.object_(
        "spec is the schedule: its targets, its time zone and its windows.",
        properties,
        "targets timeZone windows",
    )


# --- status ----------------------------------------------------------------------------------------------


def _status() -> JSON:
    plain: JSON = {"type": "string"}
    time = plain | {"format": "date-time"}
    number: JSON = {"type": "integer", "format": "int32"}
    generation = {
        "type": "integer",
        "format": "int64",
        "description": "observedGeneration is the last generation that was observed.",
    }
    boundary = parts.object_(
        "nextBoundary is the next time at which a window begins or ends.",
        {
            "time": time | {"description": "time is the time of the boundary in UTC."},
            "window": plain | {"description": "window is the name of the window."},
            "edge": plain | {"description": "edge is begin or end."},
        },
    )
    target = parts.object_(
        "A target of the spec.",
        {
            "kind": plain | {"description": "kind is the kind of the target."},
            "name": plain | {"description": "name is the name of the target."},
            "applied": {
                "type": "boolean",
                "description": "applied tells whether the bounds apply to the target.",
            },
            "reason": plain | {"description": "reason is the reason as one word."},
            "message": plain | {"description": "message is the reason as a sentence."},
            "leadSeconds": number
            | {
                "description": "leadSeconds is by how many seconds its floors begin earlier, with "
                "ready: ByStart."
            },
        },
        "kind name",
    )
    condition = parts.object_(
        "One condition.",
        {
            "type": plain
            | {
                "description": "type is the type of the condition: Applied tells whether the bounds "
                "apply to all targets."
            },
            "status": plain
            | {"description": "status is the status of the condition: True, False or Unknown."},
            "reason": plain | {"description": "reason is the reason as one word."},
            "message": plain | {"description": "message is the reason as a sentence."},
            "lastTransitionTime": time | {"description": "lastTransitionTime is when status last changed."},
            "observedGeneration": generation,
        },
        "type status",
    )
    properties = {
        "observedGeneration": generation,
        "active": plain | {"description": "active are the names of the active windows, for kubectl get."},
        "windows": parts.list_("windows are the names of the active windows.", plain),
        "minReplicas": number
        | {"description": "minReplicas is the current floor. It is not set without one."},
        "maxReplicas": number
        | {"description": "maxReplicas is the current ceiling. It is not set without one."},
        "nextBoundary": boundary,
        "conflicts": parts.list_(
            "conflicts are windows that overlap and whose floor is above the ceiling of the other.", plain
        ),
        "targets": parts.list_("targets are the targets with the effect of the bounds on each.", target)
        | _by("kind", "name"),
        "conditions": parts.list_("conditions are the conditions of the schedule.", condition) | _by("type"),
    }
    return parts.object_(
        "status is the current bounds of the schedule, its next boundary, and its conditions.", properties
    )


COLUMNS = [
    parts.column("Active", ".status.active", about="The active windows."),
    parts.column("Min", ".status.minReplicas", "integer", about="The floor now."),
    parts.column("Max", ".status.maxReplicas", "integer", about="The ceiling now."),
    parts.column("Next", ".status.nextBoundary.time", about="When the next window begins or ends."),
    parts.column(
        "Applied", parts.condition("Applied", "status"), about="Whether the bounds reach all targets."
    ),
    parts.column("Age", ".metadata.creationTimestamp", "date"),
    parts.column("Zone", ".spec.timeZone", wide=True),
    parts.column(
        "Window", ".status.nextBoundary.window", wide=True, about="The window that begins or ends next."
    ),
    parts.column("Edge", ".status.nextBoundary.edge", wide=True, about="Whether it begins or ends."),
    parts.column(
        "Reason", parts.condition("Applied", "reason"), wide=True, about="Why it is applied or not."
    ),
]


def definition() -> JSON:
    about = "Gives autoscalers floors and ceilings of replicas in windows of local time."
    schema = parts.of_kind(about, _spec(), _status())
    return parts.definition(documents.KIND, documents.PLURAL, "fps", schema, COLUMNS)


def render() -> str:
    return parts.render(definition())
