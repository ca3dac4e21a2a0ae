"""Parts of the structural schemas of our CustomResourceDefinitions, and the document around a schema.

Only features of Kubernetes 1.27 are used: no `fieldPath`, no `reason`, no quantities in CEL. Lengths and
counts have bounds so that the cost of every rule has one.
"""

from pathlib import Path
from typing import Any

import yaml

from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.timestamps import write_span

FOLDER = Path(__file__).parents[2] / "manifests/chart/files/crd"

JSON = dict[str, Any]

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


def rule(rule: str, message: str) -> JSON:
    return {"rule": rule, "message": message}


def matching(pattern: str, message: str) -> JSON:
    """Return a rule with a sentence, where a pattern would answer with the pattern."""
    return rule(f"self.matches('^{pattern}$')", message)


def object_(about: str, properties: JSON, required: str = "", *rules: JSON) -> JSON:
    shape: JSON = {"type": "object", "description": about, "properties": properties}
    if required:
        shape["required"] = required.split()
    if rules:
        shape["x-kubernetes-validations"] = list(rules)
    return shape


def list_(about: str, items: JSON, **more: Any) -> JSON:
    return {"type": "array", "description": about, "items": items, "x-kubernetes-list-type": "atomic"} | more


def text(about: str, *rules: JSON, **more: Any) -> JSON:
    shape = {"type": "string", "description": _with_default(about, more), "maxLength": 253} | more
    return shape | ({"x-kubernetes-validations": list(rules)} if rules else {})


def _with_default(about: str, more: JSON) -> str:
    """Return a description that ends with the default, which `kubectl explain` shows nowhere else."""
    return f"{about} Defaults to {more['default']}." if "default" in more else about


def choice(about: str, *values: str, **more: Any) -> JSON:
    return text(about, enum=list(values), maxLength=max(map(len, values)), **more)


def count(about: str, least: int, most: int = INT32, **more: Any) -> JSON:
    return {
        "type": "integer",
        "format": "int32",
        "description": _with_default(about, more),
        "minimum": least,
        "maximum": most,
    } | more


def segment(about: str, *rules: JSON) -> JSON:
    allowed = rule(
        "!self.contains('/') && !self.contains('%') && self != '.' && self != '..'",
        "must not contain '/' or '%', nor be '.' or '..'",
    )
    return text(about, allowed, *rules, minLength=1)


def quantity(about: str, number: str, **more: Any) -> JSON:
    return {
        "description": about,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "pattern": f"^{number}{_SUFFIX}$",
        "maxLength": 64,
    } | more


def positive(about: str) -> JSON:
    return quantity(about, rf"\+?{_POSITIVE}", minimum=1)


def measured(about: str) -> JSON:
    return quantity(about, f"[+-]?{ANY}")


def duration(about: str, bounds: tuple[int, int], *rules: JSON, word: str = "", **more: Any) -> JSON:
    """Return the schema of a duration within bounds, or of a `word` in its place."""
    least, greatest = (short(bound) for bound in bounds)
    within = rule(
        (f"self == '{word}' || " if word else "")
        + f"duration(self) >= duration('{least}') && duration(self) <= duration('{greatest}')",
        f"must be {f'{word}, or ' if word else ''}from {least} to {greatest}",
    )
    pattern = f"({word}|{_DURATION})" if word else _DURATION
    return text(about, within, *rules, pattern=f"^{pattern}$", maxLength=32, **more)


def date(about: str) -> JSON:
    known = matching(DATE, "must be a date such as 2026-12-25")
    return text(about, known, rule("self >= '0001'", "must be a date from the year 1 on"), maxLength=10)


def time_zone(about: str, **more: Any) -> JSON:
    """Return the schema of a time zone. Which zones there are only the program knows."""
    name = matching("[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", "must be a time zone such as Europe/Berlin")
    return text(about, name, minLength=1, **more)


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


def definition(
    kind: str, plural: str, short_name: str, schema: JSON, columns: list[JSON], **names: Any
) -> JSON:
    """Return the definition of a namespaced kind with a status."""
    group, _, version = fastpath_autoscaler.API_VERSION.partition("/")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short_name],
            }
            | names,
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def of_kind(about: str, spec: JSON, status: JSON) -> JSON:
    """Return the schema of a whole object."""
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    }
    return object_(about, properties, "spec")


class _Dumper(yaml.SafeDumper):
    """Writes everything out: no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(document: JSON) -> str:
    kind = document["spec"]["names"]["kind"]
    head = f"# The kind {kind}, for Kubernetes 1.27 and later. Made by `python -m tests.support.crd`.\n"
    return head + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
