"""Fuzzes what reads text of others: `python -m tests.fuzzing.harness TARGET CORPUS [FLAG OF LIBFUZZER ...]`.

Atheris mutates inputs that reach new lines of the adapter. Whatever arrives is read or refused: any exception
but those that say so ends the program, which leaves the input in a file. CORPUS is a folder, which gets the
seeds of the target if it is empty.
"""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import atheris

with atheris.instrument_imports(include=["adapter"]):
    from adapter import errors
    from adapter.config import rules_file
    from adapter.model.objects.label_selectors import parse_selector
    from adapter.model.objects.resources import BUILTIN
    from adapter.prometheus.response import ResponseDecoder
    from adapter.rules.compile import compile_rules
    from adapter.rules.scrape import exposition
    from adapter.server.api import paths, query_string, routing

ROOT = Path(__file__).parents[2]
SERVED = {
    "custom.metrics.k8s.io": ("v1beta2",),
    "external.metrics.k8s.io": ("v1beta1",),
    "metrics.k8s.io": ("v1beta1",),
}


class FuzzTarget(NamedTuple):
    """What reads an input, and the inputs to begin with."""

    read: Callable[[bytes], None]
    seeds: list[bytes]


def read_exposition(data: bytes) -> None:
    samples: list[exposition.Exposed] = []
    for _ in exposition.read(data[1:], ("x", "up"), samples, openmetrics=data[:1] == b"o", limit=100):
        pass
    for sample in samples:
        exposition.parse_labels(sample.labels)


def read_answer(data: bytes) -> None:
    """Decode an answer of Prometheus in chunks, whose size is the first byte."""
    decoder, size = ResponseDecoder(), 1 + data[0] if data else 1
    for start in range(1, len(data), size):
        decoder.feed(data[start : start + size])
        while decoder.step():
            pass
    decoder.finish()


def read_rules(data: bytes) -> None:
    parsed = rules_file.parse_rules(data.decode(), "rules.yaml")
    _, faults = compile_rules(parsed.config, BUILTIN)
    for fault in (*parsed.fatal, *parsed.faults, *faults):
        assert str(fault)


def read_selector(data: bytes) -> None:
    parse_selector(data.decode())


def read_request(data: bytes) -> None:
    """Find the route of a request line's text, and the question that its query asks."""
    target = data.decode("ascii")
    routing.weigh(target)
    routing.find_route(target, SERVED)
    path, query = paths.split_target(target)
    segments, parameters = paths.decode_segments(path), query_string.parse_parameters(query)
    query_string.read_call_options(query)
    for group, (version,) in SERVED.items():
        query_string.build_question(
            paths.parse_metric_path(group, version, segments), parameters, watch=False
        )


_ANSWERS = (ROOT / "tests" / "prometheus" / "documents" / "responses").read_bytes().splitlines()
TARGETS = {
    "exposition": FuzzTarget(
        read_exposition, [b't up{a="b"} 1 2\nx 3\n', b'oup{a="b"} 1 # {c="d"} 2\n# EOF\n']
    ),
    "answer": FuzzTarget(read_answer, [b"@" + line[2:] for line in _ANSWERS if line.startswith(b"> ")]),
    "rules": FuzzTarget(
        read_rules, [path.read_bytes() for path in (ROOT / "docs" / "examples").glob("*.yaml")]
    ),
    "selector": FuzzTarget(read_selector, [b"a=b,c in (d,e),!f,g notin (h),i"]),
    "request": FuzzTarget(
        read_request, [b"/namespaces/a/pods/*/m?labelSelector=a%3Db,c+in+(d)&metricLabelSelector=!x&limit=5"]
    ),
}


def main(name: str, corpus: Path) -> None:
    target = TARGETS[name]
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(() if any(corpus.iterdir()) else target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)

    def read(data: bytes) -> None:
        with contextlib.suppress(errors.FastpathError, UnicodeDecodeError):  # text is decoded before
            target.read(data)

    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[3:]], read)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
