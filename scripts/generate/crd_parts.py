"""What a value has to meet, as schemas of CustomResourceDefinitions say it.

Only features of Kubernetes 1.27 are used: no `fieldPath`, no `reason`, no quantities in CEL. Lengths and
counts have bounds so that the cost of every rule has one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from adapter.model.timestamps import write_span

FOLDER = Path(__file__).parents[2] / "manifests/chart/files/crd"

JSON = dict[str, Any]
Table = dict[type, Mapping[str, JSON]]
"""What is added to what a struct says of its fields, by their names in JSON; "" to the struct itself."""

INT32 = 2**31 - 1
_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
ANY = r"([0-9]+(\.[0-9]*)?|\.[0-9]*)"
_POSITIVE = r"([0-9]*[1-9][0-9]*(\.[0-9]*)?|[0-9]*\.[0-9]*[1-9][0-9]*)"
_SUFFIX = r"([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
_DURATION = rf"\+?({_NUMBER}(ns|us|ms|s|m|h))+"
_DAY_OF_YEAR = (
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP_YEAR = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
DATE = f"([0-9]{{4}}-{_DAY_OF_YEAR}|{_LEAP_YEAR}-02-29)"

TIME = {"format": "date-time"}
RULES = "x-kubernetes-validations"


# --- what a table adds to a field


def field(about: str, *rules: JSON, required: str = "", **keywords: Any) -> JSON:
    made: JSON = {"description": about} | keywords
    if required:
        made["required"] = required.split()
    if rules:
        made[RULES] = list(rules)
    return made


def rule(rule: str, message: str) -> JSON:
    return {"rule": rule, "message": message}


def matching(pattern: str, message: str) -> JSON:
    """Return a rule with a sentence, where a pattern would answer with the pattern."""
    return rule(f"self.matches('^{pattern}$')", message)


def text(about: str, *rules: JSON, **keywords: Any) -> JSON:
    return field(about, *rules, **{"maxLength": 253} | keywords)


def choice(about: str, *values: str, **keywords: Any) -> JSON:
    return text(about, enum=list(values), maxLength=max(map(len, values)), **keywords)


def count(about: str, least: int, most: int = INT32, **keywords: Any) -> JSON:
    return field(about, minimum=least, maximum=most, **keywords)


def needed(name: str, kind: str) -> JSON:
    return rule(
        f"self.type == '{kind}' ? has(self.{name}) : !has(self.{name})",
        f"{name} is needed for type {kind}, and for no other",
    )


def segment(about: str, *rules: JSON) -> JSON:
    allowed = rule(
        "!self.contains('/') && !self.contains('%') && self != '.' && self != '..'",
        "must not contain '/' or '%', nor be '.' or '..'",
    )
    return text(about, allowed, *rules, minLength=1)


def quantity(about: str, number: str, **keywords: Any) -> JSON:
    return field(about, pattern=f"^{number}{_SUFFIX}$", maxLength=64, **keywords)


def positive(about: str) -> JSON:
    return quantity(about, rf"\+?{_POSITIVE}", minimum=1)


def measured(about: str) -> JSON:
    return quantity(about, f"[+-]?{ANY}")


def duration(about: str, bounds: tuple[int, int], *rules: JSON, word: str = "", **keywords: Any) -> JSON:
    """Return what a duration within bounds, or a `word` in its place, has to meet."""
    least, greatest = (short(bound) for bound in bounds)
    within = rule(
        (f"self == '{word}' || " if word else "")
        + f"duration(self) >= duration('{least}') && duration(self) <= duration('{greatest}')",
        f"must be {f'{word}, or ' if word else ''}from {least} to {greatest}",
    )
    pattern = f"({word}|{_DURATION})" if word else _DURATION
    return text(about, within, *rules, pattern=f"^{pattern}$", maxLength=32, **keywords)


def date(about: str) -> JSON:
    known = matching(DATE, "must be a date such as 2026-12-25")
    return text(about, known, rule("self >= '0001'", "must be a date from the year 1 on"), maxLength=10)


def time_zone(about: str, **keywords: Any) -> JSON:
    """Return what the name of a time zone has to meet. Which zones there are only the program knows."""
    name = matching("[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", "must be a time zone such as Europe/Berlin")
    return text(about, name, minLength=1, **keywords)


def by(*keys: str) -> JSON:
    """Return what makes a list a map: a second item of the same key is refused."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def short(span: int) -> str:
    """Return a span without the zeros that Go writes: ``1h`` for ``1h0m0s``."""
    text = write_span(span)
    for zeros in ("m0s", "h0m"):
        text = text[: -len(zeros) + 1] if text.endswith(zeros) else text
    return text


def column(name: str, path: str, kind: str = "string", *, wide: bool = False, about: str = "") -> JSON:
    column = {"name": name, "type": kind, "jsonPath": path}
    if about:
        column["description"] = about
    return column | ({"priority": 1} if wide else {})


def condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


class _Dumper(yaml.SafeDumper):
    """Writes everything out: no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(document: JSON) -> str:
    kind = document["spec"]["names"]["kind"]
    head = f"# The kind {kind}, for Kubernetes 1.27 and later. Made by `python -m scripts.generate.crd`.\n"
    return head + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
