"""The labels that a scrape attaches to the series of an endpoint, as Prometheus does for a ServiceMonitor."""

from collections.abc import Mapping

_RENAMED = "exported_"


def attach(exposed: Mapping[str, str], attached: Mapping[str, str], *, honor: bool) -> dict[str, str]:
    """Return the labels of a series; an empty value stands for no label.

    Where both have a label, the exposed one is renamed to ``exported_NAME``. With `honor` it wins instead,
    even if it is empty.
    """
    if honor:
        return {**attached, **exposed}
    labels = {**exposed, **attached}
    renamed = [name for name, value in exposed.items() if value and name in attached]
    for name in sorted(renamed, key=len):  # in Prometheus' order
        free = _RENAMED + name
        while labels.get(free):
            free = _RENAMED + free
        labels[free] = exposed[name]
    return labels
