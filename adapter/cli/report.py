"""What `fastpath check` prints: a block of lines a rule, and the steps from Prometheus to a value."""

from collections.abc import Mapping, Sequence

from adapter.clients.prometheus import PrometheusClient
from adapter.errors import Fault, InputError, NamingError, PrometheusError, TemplateError
from adapter.model.metrics import QueryResult, SeriesInfo
from adapter.model.selectors import EVERYTHING
from adapter.rules import matchers, registry, trace
from adapter.rules.compile import Rule, Ruleset
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.query import Dropped, MetricQuery, milli_of
from adapter.rules.registry import CustomEntry, CustomKey
from adapter.rules.sketch import Example, Sketch

_SHOWN = 5
Lists = Mapping[str, tuple[SeriesInfo, ...] | PrometheusError]


def _line(label: str, text: str) -> None:
    print(f"  {label:<9} {text}")


async def print_rule(
    made: Sketch, answer: tuple[SeriesInfo, ...] | PrometheusError | None, client: PrometheusClient | None, now: float, warnings: Sequence[Fault]
) -> None:
    """Print what one rule asks and serves; with a client its example is asked for real."""
    config = made.rule.config
    print(f"{config.path}  ({config.source}:{config.line})")
    _line("series", config.series_query or "(none)")
    if isinstance(answer, PrometheusError):
        _line("", f"not read: {answer}")
    elif answer is not None:
        _line("", f"{sum(series.count for series in answer)} series of {len(answer)} names, {len(made.series)} names taken")
    _line("metrics", _listed(made.metrics) or ("none" if answer is not None else f"what {config.name_matches or '.*'} makes of the names found"))
    if made.examples and made.examples[0].resource is not None:
        _line("objects", _listed([str(example.resource.group_resource) for example in made.examples if example.resource]))
    for example in _examples_to_show(made):
        await _print_example(example, client, now)
    for warning in warnings:
        value = f"{warning.value}: " if warning.value else ""
        _line("warning", f"{warning.path.removeprefix(config.path + '.')}: {value}{warning.expected}")
    print()


def _examples_to_show(made: Sketch) -> Sequence[Example]:
    """Return the first example that is not about namespaces, else the first."""
    others = [example for example in made.examples if example.resource is None or example.resource.group_resource != NAMESPACES]
    return (others or list(made.examples))[:1]


async def _print_example(example: Example, client: PrometheusClient | None, now: float) -> None:
    if not example.promql:
        _line("asks", f"nothing: {example.fault}")
        return
    _line("asks", " ".join(example.promql.split()))
    if example.separability is not None:
        verdict = example.separability
        if not verdict.separable:
            _line("merged", f"no, asked alone: {verdict.reason}")
        elif verdict.join_reason:
            _line("merged", f"yes, within a namespace: {verdict.join_reason}")
        else:
            _line("merged", "yes")
    if client is not None:
        try:
            result = await client.query(example.promql, now)
        except PrometheusError as error:
            _line("answer", f"refused: {error}")
        else:
            _line("answer", "the query is accepted" if not result.samples else f"{len(result.samples)} samples")


async def explain(ruleset: Ruleset, lists: Lists, client: PrometheusClient, now: float, metric: str, wanted: str | None) -> None:
    """Print the way of a metric from the series to the value of the object `wanted`, or where it ends."""
    found = False
    for rules, external in ((ruleset.custom, False), (ruleset.external, True)):
        for rule in rules:
            answer = lists.get(rule.config.series_query, ())
            print(f"{rule.config.path}  {rule.config.series_query}")
            if isinstance(answer, PrometheusError):
                print(f"  series could not be read: {answer}")
                continue
            traced = trace.trace_rule(rule, answer, metric, external=external)
            for step in traced.steps:
                print(f"  {step}")
            found = found or bool(traced.gives)
    memory: dict[str, tuple[registry.Known, ...]] = {}
    for selector, answer in lists.items():
        if not isinstance(answer, PrometheusError):
            memory = registry.remember(memory, selector, answer)
    known = registry.build(ruleset, memory, 1)
    kinds = sorted({str(key.resource) for key in known.custom if key.metric == metric})
    external_entry = known.external.get(metric)
    print()
    if kinds:
        print(f"{metric} is served for {_listed(kinds)} (custom.metrics.k8s.io)")
    if external_entry is not None:
        print(f"{metric} is served by {external_entry.rule.config.path} (external.metrics.k8s.io)")
    if not kinds and external_entry is None:
        print(f"{metric} is not served: {'its series name no object' if found else 'no rule makes it of the series there are'}")
        return
    if wanted is not None:
        await _ask_object(known, client, now, metric, wanted)


async def _ask_object(known: registry.Registry, client: PrometheusClient, now: float, metric: str, wanted: str) -> None:
    """Ask for one object as the API would, and say what came back."""
    parts = wanted.split("/")
    if len(parts) == 1:
        entry = known.external.get(metric)
        if entry is None:
            raise InputError([Fault("--object", wanted, f"expected KIND/NAMESPACE/NAME: {metric} is not an external metric")])
        await _ask_external(entry.rule, entry.series, client, now, parts[0])
        return
    kind, namespace, name = (parts[0], None, parts[1]) if len(parts) == 2 else (parts[0], parts[1], "/".join(parts[2:]))
    custom = _find(known, kind, namespace, metric)
    if custom is None:
        kinds = sorted({str(key.resource) for key in known.custom if key.metric == metric})
        raise InputError([Fault("--object", wanted, f"expected one of {', '.join(kinds)} as KIND, with a namespace unless it has none")])
    try:
        converter = custom.rule.converter
        label = converter.label_for(custom.resource.group_resource)
        query = MetricQuery(custom.rule, custom.series, matchers.from_selector(EVERYTHING), converter.label_for(NAMESPACES) if namespace else "", label)
        promql = query.render(namespace, [name])
    except (NamingError, TemplateError) as error:
        print(f"no query can be made: {error}")
        return
    result = await _ask(client, promql, now)
    if result is None:
        return
    named = [sample for sample in result.samples if sample.labels.get(label) == name]
    if result.type != "vector":
        print(f"  the answer is a {result.type}, and a vector is needed")
    elif not result.samples:
        print(f"  no sample: nothing in Prometheus now has {label}={name!r}" + (f" in namespace {namespace!r}" if namespace else ""))
    elif not named:
        have = sorted({sample.labels.get(label, "(no such label)") for sample in result.samples})
        print(f"  no sample belongs to {name}: the label {label} of the answer is {_listed(have)}")
    else:
        print(f"  value {_value(named[-1].value)}" + (f", the last of {len(named)} samples" if len(named) > 1 else ""))


def _find(known: registry.Registry, kind: str, namespace: str | None, metric: str) -> CustomEntry | None:
    """Return the entry whose kind is written `kind`, plural or singular, with or without its group."""
    name, _, group = kind.lower().partition(".")
    for key, entry in known.custom.items():
        resource = entry.resource
        if (
            key == CustomKey(key.resource, namespace is not None, metric)
            and name in {resource.plural, resource.singular}
            and group in {"", resource.group}
        ):
            return entry
    return None


async def _ask_external(rule: Rule, series: str, client: PrometheusClient, now: float, namespace: str) -> None:
    try:
        parts = [] if not rule.config.resources.namespaced else [Matcher(rule.converter.label_for(NAMESPACES), "=", namespace)]
        promql = rule.render(series, parts, [])
    except (NamingError, TemplateError) as error:
        print(f"no query can be made: {error}")
        return
    result = await _ask(client, promql, now)
    for sample in result.samples[:_SHOWN] if result else ():
        print(f"  value {_value(sample.value)} {dict(sample.labels)}")
    if result and not result.samples:
        print("  no sample")


async def _ask(client: PrometheusClient, promql: str, now: float) -> QueryResult | None:
    print(f"asked     {' '.join(promql.split())}")
    try:
        result = await client.query(promql, now)
    except PrometheusError as error:
        print(f"  refused: {error}")
        return None
    print(f"  {len(result.samples)} samples")
    return result


def _value(value: float) -> str:
    try:
        milli = milli_of(value, nan_is_zero=False)
    except OverflowError as error:
        return str(error)
    return f"{value}: left out" if isinstance(milli, Dropped) else f"{value}"


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{', '.join(texts[:_SHOWN])}{more}"
