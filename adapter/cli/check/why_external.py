"""The part of `fastpath check --why` that follows a served external metric to its values in a namespace."""

from adapter.cli.check import empty, empty_external, report
from adapter.cli.check.session import SHOWN_VALUES, Inquiry
from adapter.config.rules_file import OnNaN
from adapter.errors import NamingError, TemplateError
from adapter.rules.matchers import Matcher, join
from adapter.rules.naming import NAMESPACES
from adapter.rules.registry import ExternalEntry


async def explain(
    inquiry: Inquiry, entry: ExternalEntry, namespace: str, selector: tuple[Matcher, ...]
) -> str:
    """Return the sentence about the metric as an autoscaler in `namespace` asks for it; the story grows with every step."""
    rule, metric = entry.rule, inquiry.story.metric
    place = rule.config.path
    lines = inquiry.story.section(f"in namespace {namespace}, answered by {place} from {entry.series}")
    try:
        label = rule.converter.label_for(NAMESPACES) if rule.config.resources.namespaced else ""
        promql = rule.render(
            entry.series, [*selector, *([Matcher(label, "=", namespace)] if label else [])], []
        )
    except NamingError:
        return empty_external.no_namespace_label(place)
    except TemplateError as error:
        return empty.no_query(place, error)
    result = await inquiry.ask(lines, promql, accepts_warnings=rule.accepts_warnings)
    if result is None:
        return inquiry.story.conclusion
    on_nan = rule.config.on_nan
    values = [empty.value_of(sample, nan_is_zero=on_nan is OnNaN.ZERO) for sample in result.samples]
    lines += [
        f"{report.show_labels(sample)}: {value.fault or value.quantity}"
        for sample, value in list(zip(result.samples, values, strict=True))[:SHOWN_VALUES]
    ]
    good = [value for value in values if not value.fault]
    if len(good) < len(values) and (on_nan is not OnNaN.DROP or not good):
        return empty_external.lacks_a_part(metric, len(values) - len(good), len(values))
    if good:
        inquiry.story.served = empty_external.can_be_asked_for(metric)
        return empty_external.served(metric, len(good))
    followups = empty_external.build_followups(entry.series, label, namespace, selector)
    named = await inquiry.follow(lines, followups.named)
    around = await inquiry.follow(lines, followups.around)
    labels = inquiry.labels(rule.config.series_query, entry.series)
    case = empty_external.Nothing(
        entry, label, namespace, join(selector), named, around, labels, inquiry.look_back
    )
    return empty_external.explain_nothing(case)
