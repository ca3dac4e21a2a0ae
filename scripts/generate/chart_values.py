"""The table of values in the chart's README: ``python -m scripts.generate.chart_values`` writes it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.support.rendered import MANIFESTS

CHART = MANIFESTS / "chart"
README = CHART / "README.md"
BEGIN, END = "<!-- values: python -m scripts.generate.chart_values -->", "<!-- end of values -->"

Schema = Mapping[str, Any]


def read_schema() -> Schema:
    """Return the schema of the chart's values."""
    schema: Schema = json.loads((CHART / "values.schema.json").read_text())
    return schema


def walk(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Yield the path and the schema of each value, sections before the values in them."""
    for key, below in schema.get("properties", {}).items():
        yield (*path, key), below
        yield from walk(below, (*path, key))


def leaves() -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Yield the path and the schema of each value that is no section of others."""
    return ((path, schema) for path, schema in walk(read_schema()) if "properties" not in schema)


def default_of(defaults: Any, path: tuple[str, ...]) -> Any:
    """Return one of the default values, None if it has none."""
    found = defaults
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def table() -> str:
    """Return the table of the README."""
    lines = ["| value | default | meaning |", "|---|---|---|"]
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for path, schema in leaves():
        default = default_of(defaults, path)
        shown = "" if default is None else f"`{json.dumps(default)}`"
        if len(shown) > 60:
            shown = "see values.yaml"
        text = schema["description"].replace("|", "\\|")
        lines.append(f"| `{'.'.join(path)}` | {shown} | {text} |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """Return the README with the table of today."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    README.write_text(updated(README.read_text()))
