"""Values of the chart for other tests of what it renders: those of cases in tests/golden/chart."""

from collections.abc import Mapping

import yaml

from tests.support.rendered import JSON, ROOT

FOLDER = ROOT / "tests" / "golden" / "chart"
CASES = (
    *("defaults", "all-on", "all-off", "scaler-in-process"),
    *("compatible", "compatible-all-on", "compatible-all-off"),
)
RENDERINGS: Mapping[str, JSON] = {
    case: yaml.safe_load((FOLDER / case / "values.yaml").read_text()) for case in CASES
}
ALL_ON, ALL_OFF, MODE = RENDERINGS["all-on"], RENDERINGS["all-off"], RENDERINGS["compatible"]
ALL_RULES: JSON = ALL_ON["rules"]
(RULE,) = ALL_RULES["custom"]
