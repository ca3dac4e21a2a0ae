"""The verbs of this package, by what they do and where they are; pyproject.toml registers them."""

from adapter.cli.verbs import Verb

_RICH = ("rich",)

BOOST = Verb(
    "make the HorizontalPodAutoscalers of a manifest boosted, advised, or plain again",
    "fastpath_tools.boost.command",
    needs=("jsonpatch", "ruamel.yaml"),
)
CERTS = Verb("make the serving Secret and the caBundle of the APIServices", "fastpath_tools.certs")
CHECK = Verb(
    "validate a rules file, show what each rule asks and serves, explain why a metric is missing",
    "fastpath_tools.check.command",
    command_line="fastpath_tools.check.options",
)
COMPLETION = Verb(
    "print the script that makes a shell complete verbs, flags and values", "fastpath_tools.completion"
)
CANDIDATES = Verb("print what may stand at the cursor", "fastpath_tools.completion", "print_candidates")
"""What the scripts of completion call."""

CONVERT = Verb(
    "print the FastPathAutoscaler for a HorizontalPodAutoscaler, or the reverse",
    "fastpath_tools.convert.command",
)
DOCTOR = Verb(
    "measure how long an autoscaler of a live cluster takes to react, hop by hop, and what helps most",
    "fastpath_tools.doctor.command",
    command_line="fastpath_tools.doctor.options",
)
EVALUATE = Verb(
    "show what an autoscaler does with exactly this input, offline, and why", "fastpath_tools.evaluate"
)
EXPLAIN = Verb("show what the scaler decided for one autoscaler and why", "fastpath_tools.explain")
FORECAST = Verb(
    "show whether a forecast of the demand would help an autoscaler, and what it says",
    "fastpath_tools.forecast.command",
    command_line="fastpath_tools.forecast.options",
    needs=_RICH,
)
PREFLIGHT = Verb(
    "show which server has the metrics APIs of a cluster, before the manifests are applied",
    "fastpath_tools.preflight",
)
SCHEDULE = Verb(
    "show when the windows of FastPathSchedules begin and end, and which bounds they give",
    "fastpath_tools.schedule.command",
)
SLICES = Verb("show which scaler owns which slices of the namespaces", "fastpath_tools.slices")
SIMULATE = Verb(
    "show what an autoscaler would have done with a load, and what another would have done better",
    "fastpath_tools.simulate.command",
    command_line="fastpath_tools.simulate.options",
    needs=_RICH,
)
UI = Verb(
    "serve pages that show autoscalers and why their counts are what they are, to a browser on this machine",
    "fastpath_tools.ui.command",
    command_line="fastpath_tools.ui.options",
    needs=("jinja2",),
)
