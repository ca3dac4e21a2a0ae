"""The `Floor`: what Fastpath publishes, and remembers, of one boosted HorizontalPodAutoscaler.

The owner of each slice stores its floors in a ConfigMap, one entry of JSON per HPA under its uid. Every
replica reads the ConfigMaps of all slices and serves the floors as the metric ``fastpath_replicas`` (see
`adapter.boost`).
"""

from collections.abc import Mapping

import msgspec

from adapter.model.autoscaling import slices
from adapter.model.autoscaling.hpa import Int32, decode_scalar, encode_scalar
from adapter.model.objects.api_objects import Struct
from adapter.model.timestamps import SECOND, FineInstant, Span

LABEL = "fastpath.io/floors"
"""The label, with the value ``true``, by which readers find the ConfigMaps of all slices."""

LONGEST = 600 * SECOND
"""The longest time that a floor holds."""

LONGEST_SCHEDULED = 24 * 3600 * SECOND
"""The longest time that the floor of a schedule holds without being published again."""

REVERSALS_WITHIN = 300 * SECOND
"""How long a reversal counts."""

LONGEST_FORECAST = LONGEST
"""The longest time that the floor of a forecast holds without being published again."""

_NAME = "fastpath-floors"


class Demotion(Struct, frozen=True):
    """Boosting ended because the field manager `by` took raises back.

    It lasts `until`, or until spec or annotations no longer have this `digest` (`BoostedHPA.digest`).
    """

    until: FineInstant = FineInstant(0)
    by: str = ""
    digest: str = ""


class Floor(Struct, frozen=True):
    """A raise that is held, and what else the next owner has to know of the HPA.

    The HPA reads at least `replicas` as its floor until `until`; 0 means that no raise is held. The names of
    the fields are the format of the ConfigMap.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""
    replicas: Int32 = 0
    until: FineInstant = FineInstant(0)
    raised_from: Int32 = 0
    """The count before the last raise."""
    raised_at: FineInstant = FineInstant(0)
    shown: FineInstant | None = None
    """When the status of the HPA first showed the raise."""
    seen: str = ""
    """The resource version of the HPA that the owner had when it published this."""
    demoted: Demotion | None = None
    hold: Span = Span(0)
    """How long the floor holds after it was shown."""
    reversals: tuple[FineInstant, ...] = ()
    """When other field managers took raises back, within `REVERSALS_WITHIN`."""
    stands: bool = False
    """The Scale is known to have been written, and not taken back since."""
    added: Int32 = 0
    """The replicas that earlier raises added and that scaling policies still count: a ramp is many raises,
    and only the last one has a floor.
    """
    target: str = ""
    """The uid of the scale target, "" if unknown."""
    scheduled: Int32 = 0
    """The floor of the windows of schedules that are active, which holds until `scheduled_until`."""
    scheduled_until: FineInstant = FineInstant(0)
    forecast: Int32 = 0
    """The floor of a forecast, which holds until `forecast_until`."""
    forecast_until: FineInstant = FineInstant(0)
    excused: bool = False
    """The native controller has once written a count that it had decided before the raise."""


def floor_of(floor: Floor | None, now: int, most: int) -> int:
    """Return the floor at `now`, at most `most` (the ``maxReplicas`` of today); 0 for none."""
    if floor is None:
        return 0
    raised = floor.replicas if now < floor.until else 0
    scheduled = floor.scheduled if now < floor.scheduled_until else 0
    forecast = floor.forecast if now < floor.forecast_until else 0
    return min(max(raised, scheduled, forecast), most)


def greatest(floor: Floor) -> int:
    """Return the greatest number of a floor, at whatever time it holds."""
    return max(floor.replicas, floor.scheduled, floor.forecast)


def as_known_for(floor: Floor, known: int) -> Floor:
    """Return a floor as it counts for a reader that has known it unchanged for `known` nanoseconds.

    A reader ends every raise, and the floor of a forecast, after `LONGEST`, and the floor of a schedule after
    `LONGEST_SCHEDULED`. The ends come from the clock of the owner: if that clock was hours ahead and no
    scaler runs any more, nothing else would end the floor. This never cuts the floor of a correct clock,
    because a floor is read after it was written.
    """
    if known < LONGEST:
        return floor
    scheduled = floor.scheduled if known < LONGEST_SCHEDULED else 0
    return msgspec.structs.replace(floor, replicas=0, scheduled=scheduled, forecast=0)


def is_over(floor: Floor, now: int) -> bool:
    """Tell whether a floor holds nothing any more: no number, reversal that counts or demotion."""
    is_demoted = floor.demoted is not None and now < floor.demoted.until
    is_counted = any(at > now - REVERSALS_WITHIN for at in floor.reversals)
    return not (is_demoted or is_counted or floor_of(floor, now, greatest(floor)))


def is_newer(version: str, cached: str) -> bool:
    """Tell whether a resource version is newer than `cached`; assume so if they cannot be compared."""
    if not version or version == cached:
        return False
    return not (version.isdecimal() and cached.isdecimal()) or int(version) > int(cached)


def encode_floor(floor: Floor) -> str:
    return msgspec.json.encode(floor, enc_hook=encode_scalar).decode()


def decode_floor(text: str) -> Floor:
    """Return the floor of a JSON text; ValueError for any other text."""
    try:
        return msgspec.json.decode(text, type=Floor, dec_hook=decode_scalar)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a floor: {error}") from error


def decode_floors(data: Mapping[str, str] | None) -> dict[str, Floor]:
    """Return the floors of a ConfigMap by uid; ValueError if one cannot be read."""
    return {uid: decode_floor(text) for uid, text in (data or {}).items()}


def config_map_name(number: int) -> str:
    """Return the name of the ConfigMap of a slice."""
    return slices.name_of(_NAME, number)
