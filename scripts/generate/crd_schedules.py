"""The CustomResourceDefinition of FastPathSchedule; `crd` writes its file.

The schema refuses what a document can be refused for without the tz database and the meaning of cron fields.
tests/bounds/schedule/test_schema.py compares it with the program. What only the program refuses stands in
the status.
"""

from adapter.autoscaler.schedules import status
from adapter.bounds.schedule import documents
from adapter.model.timestamps import SECOND
from scripts.generate import crd_parts as parts
from scripts.generate import crd_schema
from scripts.generate.crd_parts import JSON, Table, field

PATH = parts.FOLDER / "fastpathschedules.yaml"

_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"
_CLOCK_OR_MIDNIGHT = f"({_CLOCK}|24:00(:00)?)"


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
).replace("\\", "\\\\")
"""As it stands in a string of CEL."""

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


_FIRST, _LAST = _with_seconds("start", 16), _with_seconds("end", 16)
_BEGIN, _END = _with_seconds("from", 5), _with_seconds("to", 5)
_WINDOW_RULES = [
    parts.rule("has(self.minReplicas) || has(self.maxReplicas)", "needs minReplicas, maxReplicas, or both"),
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
        f"!has(self.from) || !has(self.to) || {_BEGIN} != {_END}",
        "to must be another time than from; 00:00 to 24:00 is the whole day",
    ),
    # Texts of this form sort as times; an end at 24:00 sorts before the next day.
    parts.rule(f"!has(self.start) || !has(self.end) || {_FIRST} < {_LAST}", "end must be after start"),
]

_SPEC: Table = {
    documents.ScheduleSpec: {
        "": field(
            "spec is the schedule: its targets, its time zone and its windows.",
            required="targets timeZone windows",
        ),
        "targets": field(
            "are the autoscalers that the bounds apply to. A HorizontalPodAutoscaler has to be boosted, and "
            "gets the floors alone.",
            minItems=1,
            maxItems=documents.MOST_TARGETS,
            **parts.by("kind", "name"),
        ),
        "timeZone": parts.time_zone(
            "is the time zone of all local times, by its name in the tz database, such as Europe/Berlin."
        ),
        "ready": parts.choice(
            "is when the floor is raised: AtStart raises it when a window begins. ByStart raises it earlier, "
            "by the time that pods were seen to take to be Ready, at most 10 minutes, so that they are Ready "
            "when the window begins.",
            documents.AT_START,
            documents.BY_START,
            default=documents.AT_START,
        ),
        "windows": field(
            "are the times in which bounds apply. Where windows overlap, the largest floor and the smallest "
            "ceiling apply; where the floor is above the ceiling, the floor applies.",
            minItems=1,
            maxItems=documents.MOST_WINDOWS,
            **parts.by("name"),
        ),
        "except": field(
            "are local dates on which no window with from or cron begins.",
            items=parts.date("A local date."),
            maxItems=documents.MOST_EXCEPTIONS,
        ),
    },
    documents.ScheduleTarget: {
        "": field("An autoscaler in the namespace of the schedule.", required="kind name"),
        "kind": parts.choice("is HorizontalPodAutoscaler or FastPathAutoscaler.", *documents.TARGET_KINDS),
        "name": parts.text("is the name of the autoscaler.", minLength=1),
    },
    documents.WindowSpec: {
        "": field("A window of local time and its bounds.", *_WINDOW_RULES, required="name"),
        "name": parts.text(
            "is the name of the window, unique in the schedule. Status and events show it.",
            _VISIBLE,
            minLength=1,
        ),
        "days": field(
            "are the days on which a window with from and to begins. Defaults to every day.",
            items=parts.choice("A day.", *documents.DAYS),
            minItems=1,
        ),
        "from": _clock(
            "is when the window begins on each of the days, as local time such as 08:00.", _CLOCK, "23:59:59"
        ),
        "to": _clock(
            "is when the window ends, as local time. A time earlier than from is on the next day.",
            _CLOCK_OR_MIDNIGHT,
            "24:00",
        ),
        "cron": parts.text(
            "is when the window begins, as a cron expression in local time: minute, hour, day of the month, "
            "month, day of the week.",
            parts.rule(
                rf"self.matches('^(?i)\\s*{_CRON}\\s*$')",
                "must be a cron expression of five fields such as 0 22 28-31 * *",
            ),
            maxLength=documents.MOST_CRON,
        ),
        "for": parts.duration(
            "is how long a window with cron lasts in elapsed time, as a duration such as 8h.",
            (SECOND, documents.LONGEST_FOR),
            _WHOLE,
        ),
        "start": _local("is when a window that occurs once begins, as local time without offset.", _CLOCK),
        "end": _local(
            "is when a window that occurs once ends, as local time without offset. 24:00 is allowed.",
            _CLOCK_OR_MIDNIGHT,
        ),
        "minReplicas": parts.count("is the least minReplicas of the targets in the window.", 0),
        "maxReplicas": parts.count("is the greatest maxReplicas of the targets in the window.", 0),
    },
}

_STATUS: Table = {
    status.ScheduleStatus: {
        "": field("status is the current bounds of the schedule, its next boundary, and its conditions."),
        "observedGeneration": field("is the last generation that was observed."),
        "active": field("are the names of the active windows, for kubectl get."),
        "windows": field("are the names of the active windows."),
        "minReplicas": field("is the current floor. It is not set without one.", format="int32"),
        "maxReplicas": field("is the current ceiling. It is not set without one.", format="int32"),
        "nextBoundary": field("is the next time at which a window begins or ends."),
        "conflicts": field("are windows that overlap and whose floor is above the ceiling of the other."),
        "targets": field(
            "are the targets with the effect of the bounds on each.", **parts.by("kind", "name")
        ),
        "conditions": field("are the conditions of the schedule.", **parts.by("type")),
    },
    status.NextBoundary: {
        "time": field("is the time of the boundary in UTC.", **parts.TIME),
        "window": field("is the name of the window."),
        "edge": field("is begin or end."),
    },
    status.TargetStatus: {
        "": field("A target of the spec.", required="kind name"),
        "kind": field("is the kind of the target."),
        "name": field("is the name of the target."),
        "applied": field("tells whether the bounds apply to the target."),
        "reason": field("is the reason as one word."),
        "message": field("is the reason as a sentence."),
        "leadSeconds": field(
            "is by how many seconds at most its floors begin earlier, with ready: ByStart.", format="int32"
        ),
    },
    status.ScheduleCondition: {
        "": field("One condition.", required="type status"),
        "type": field("is the type of the condition: Applied tells whether the bounds apply to all targets."),
        "status": field("is the status of the condition: True, False or Unknown."),
        "reason": field("is the reason as one word."),
        "message": field("is the reason as a sentence."),
        "lastTransitionTime": field("is when status last changed.", **parts.TIME),
        "observedGeneration": field("is the last generation that was observed."),
    },
}

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
    return crd_schema.definition(
        "Gives autoscalers floors and ceilings of replicas in windows of local time.",
        {"kind": documents.KIND, "plural": documents.PLURAL, "shortNames": ["fps"]},
        (documents.ScheduleSpec, _SPEC),
        (status.ScheduleStatus, _STATUS),
        COLUMNS,
    )
