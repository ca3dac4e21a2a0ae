"""The verbs of the command `fastpath`. The module of a verb is imported only when the verb runs."""

import importlib
from typing import Any, NamedTuple

from adapter.config.option_fields import Command


class Verb(NamedTuple):
    """What a verb does, and where the function that does it and its command line are.

    `module` is relative to `adapter.cli`. `command_line` is the module with the verb's Command; its own by
    default.
    """

    about: str
    module: str
    function: str = "main"
    command_line: str = ""
    command: str = "COMMAND"

    def run(self, arguments: list[str]) -> int:
        """Run the verb and return the exit status."""
        module = importlib.import_module(f"adapter.cli.{self.module}")
        status: int = getattr(module, self.function)(arguments)
        return status

    def load_command(self) -> Command[Any]:
        """Return the verb's command line."""
        module = importlib.import_module(self.command_line or f"adapter.cli.{self.module}")
        command: Command[Any] = getattr(module, self.command)
        return command


_SERVER = "adapter.config.options"

VERBS = {
    "serve": Verb(
        "serve the metrics APIs; takes every prometheus-adapter flag", "serve", "main", _SERVER, "SERVE"
    ),
    "scale": Verb(
        "run the scaler of `serve --scaler` alone, without the metrics APIs",
        "serve",
        "scale",
        _SERVER,
        "SCALE",
    ),
    "explain": Verb("show what the scaler decided for one autoscaler and why", "explain"),
    "check": Verb(
        "validate a rules file, show what each rule asks and serves, explain why a metric is missing",
        "check.command",
        command_line="fastpath_tools.check.options",
    ),
    "evaluate": Verb("show what an autoscaler does with exactly this input, offline, and why", "evaluate"),
    "simulate": Verb(
        "show what an autoscaler would have done with a load, and what another would have done better",
        "simulate.command",
        command_line="fastpath_tools.simulate.options",
    ),
    "forecast": Verb(
        "show whether a forecast of the demand would help an autoscaler, and what it says",
        "forecast.command",
        command_line="fastpath_tools.forecast.options",
    ),
    "doctor": Verb(
        "measure how long an autoscaler of a live cluster takes to react, hop by hop, and what helps most",
        "doctor.command",
        command_line="fastpath_tools.doctor.options",
    ),
    "convert": Verb(
        "print the FastPathAutoscaler for a HorizontalPodAutoscaler, or the reverse", "convert.command"
    ),
    "boost": Verb(
        "make the HorizontalPodAutoscalers of a manifest boosted, advised, or plain again", "boost"
    ),
    "schedule": Verb(
        "show when the windows of FastPathSchedules begin and end, and which bounds they give",
        "schedule.command",
    ),
    "certs": Verb("make the serving Secret and the caBundle of the APIServices", "certs"),
    "preflight": Verb(
        "show which server has the metrics APIs of a cluster, before the manifests are applied", "preflight"
    ),
    "demo": Verb("run everything in one process on an embedded cluster, live in the terminal", "demo"),
    "completion": Verb("print the script that makes a shell complete verbs, flags and values", "completion"),
}

HIDDEN = {"__complete": Verb("print what may stand at the cursor", "completion", "print_candidates")}
"""What the scripts of completion call; no list names it."""
