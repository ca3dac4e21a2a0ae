"""Publishes the floors of one slice.

All pending changes go into one write of the ConfigMap of the slice. A floor counts as published
once the API server has accepted a ConfigMap that contains it. What this term has published is right: it is
restored if another client changed it, which is checked every `CHECK` seconds. Entries that this term did not
write are kept.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapter import errors
from adapter.kubernetes.write.config_map import StoredInTerm, StoreSlot
from adapter.kubernetes.write.outbox import IDLE, SendTime
from adapter.model.autoscaling.floor import Floor, config_map_name, decode_floors, encode_floor

LIMIT = 900_000
"""Limit on the bytes of all entries; the API server takes a mebibyte."""

SHARE = LIMIT // 2
"""Limit on the bytes of the entries of one namespace: many raises of one tenant must not block the others."""

RETRY, RETRY_LIMIT = 0.5, 10.0
"""Seconds before a failed write is repeated, doubled up to the limit."""

CHECK = 5.0
"""Seconds between two looks at the stored ConfigMap while floors are published."""

WRITE_PROBLEM = "floor-write"

_TERM_OVER = "this process no longer owns the slice"


@dataclass(slots=True, eq=False)
class _FloorEntry:
    """A wanted entry, absent if `text` is None. `accepted` is set if a caller waits for it."""

    uid: str
    namespace: str
    text: str | None
    accepted: asyncio.Future[None] | None = None

    @property
    def is_awaited(self) -> bool:
        return self.accepted is not None and not self.accepted.done()

    def fail(self, error: Exception) -> None:
        if self.accepted is not None and not self.accepted.done():
            self.accepted.set_exception(error)


class FloorWriter(StoredInTerm):
    """Publishes the floors of a slice as its owner, through an outlet, once `start` has returned."""

    def __init__(self, slot: StoreSlot) -> None:
        super().__init__(slot, config_map_name(slot.number))
        self._published: dict[str, _FloorEntry] = {}
        self._pending: dict[str, _FloorEntry] = {}
        self._sending: list[_FloorEntry] = []
        self._has_started = self._is_over = False
        self._pause = 0.0
        self._retry_at = self._looked_at = 0.0
        """When a failed write is repeated, and when the last one ended, in monotonic seconds."""

    async def start(self) -> Mapping[str, Floor]:
        """Take over what is published, and return it by uid.

        A ConfigMap that exists is written as it is, so that writes of the previous owner that are still
        under way fail. Raises `errors.KubernetesError` or `errors.NotLeadingError`; then call it again.
        """
        adopted: dict[str, Floor] = {}

        def adopt(texts: Mapping[str, str]) -> tuple[Mapping[str, str], bool]:
            nonlocal adopted
            adopted = self._decode(texts)
            self._published = {
                uid: _FloorEntry(uid, floor.namespace, texts[uid]) for uid, floor in adopted.items()
            }
            return texts, True

        await self._config_map.update(adopt)
        self._has_started = True
        self._looked_at = self._clock.monotonic()
        self.submit()
        return adopted

    async def publish(self, floor: Floor) -> None:
        """Return when the API server has accepted a floor.

        On `errors.KubernetesError` the floor may be stored or not; what was published before is then
        restored. Raises `errors.NotLeadingError` if the term is over. A caller that is cancelled has to say
        with `want` what it wants.
        """
        if self._is_over:
            raise errors.NotLeadingError(_TERM_OVER)
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(_FloorEntry(floor.uid, floor.namespace, encode_floor(floor), accepted))
        try:
            await accepted
        finally:
            if accepted.done() and not accepted.cancelled():
                accepted.exception()  # retrieved, even if this task was cancelled in the meantime

    def want(self, uid: str, floor: Floor | None) -> None:
        """Publish a floor, or remove it if None, without waiting. Failed writes are repeated."""
        namespace, text = ("", None) if floor is None else (floor.namespace, encode_floor(floor))
        self._put(_FloorEntry(uid, namespace, text))

    def _put(self, entry: _FloorEntry) -> None:
        replaced = self._pending.get(entry.uid)
        self._pending[entry.uid] = entry
        if replaced is not None and replaced not in self._sending:
            replaced.fail(_superseded(entry.uid))
        self.submit()

    def close(self) -> None:
        """Tell callers that wait that the term is over, with NotLeadingError."""
        self._problems.resolve(WRITE_PROBLEM, subject=self._config_map.name)
        self._is_over = True
        for entry in (*self._pending.values(), *self._sending):
            entry.fail(errors.NotLeadingError(_TERM_OVER))

    # -- when ------------------------------------------------------------------------------------------------

    def due(self, now: float) -> SendTime:
        """Return when there is something to write or check. No caller waits for the pause after a failure."""
        if not self._has_started:
            return IDLE
        if any(entry.is_awaited for entry in self._pending.values()):
            return SendTime(now)
        if self._has_news:
            return SendTime(self._retry_at)
        return SendTime(self._looked_at + CHECK) if self._published else IDLE

    @property
    def _has_news(self) -> bool:
        return bool(self._pending) or self._config_map.unsure is not None

    async def write(self) -> None:
        """Write what is pending, and tell the callers that wait what became of it.

        If nothing is, restore what another client may have changed.
        """
        if not self._has_news:
            self._config_map.forget()
        try:
            written = await self._config_map.update(self._merge)
        except (errors.KubernetesError, errors.NotLeadingError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the next write may succeed, and nothing else publishes floors
            self._problems.defects.note("unexpected error while publishing floors", error)
            self._fail(errors.KubernetesError(0, "Unexpected", "an unexpected error: see the log"))
        else:
            for entry in self._sending:
                self._confirm(entry)
            self._pause = self._retry_at = 0.0
            if written:
                self._problems.resolve(WRITE_PROBLEM, subject=self._config_map.name)
        self._sending = []
        self._looked_at = self._clock.monotonic()

    def _fail(self, error: errors.KubernetesError | errors.NotLeadingError) -> None:
        """Tell the callers that wait that the write has failed, and repeat it after a pause."""
        if self._pending and isinstance(error, errors.KubernetesError):
            message = "floors cannot be published; boost does not scale up"
            self._problems.report(WRITE_PROBLEM, message, str(error), subject=self._config_map.name)
        for entry in (*self._pending.values(), *self._sending):
            entry.fail(error)
        for entry in list(self._pending.values()):
            if entry.accepted is not None:
                self._restore(entry)
        self._pause = min(2 * self._pause or RETRY, RETRY_LIMIT)
        self._retry_at = self._clock.monotonic() + self._pause

    def _confirm(self, entry: _FloorEntry) -> None:
        """Note that an entry is stored."""
        if entry.text is None:
            self._published.pop(entry.uid, None)
        else:
            self._published[entry.uid] = entry
        if self._pending.get(entry.uid) is entry:
            del self._pending[entry.uid]
        if entry.accepted is not None and not entry.accepted.done():
            entry.accepted.set_result(None)

    def _restore(self, entry: _FloorEntry) -> None:
        """Want again what was published before an entry: the API server may have accepted the new one."""
        before = self._published.get(entry.uid)
        self._pending[entry.uid] = _FloorEntry(entry.uid, entry.namespace, before.text if before else None)

    # -- what ------------------------------------------------------------------------------------------------

    def _merge(self, stored: Mapping[str, str]) -> tuple[Mapping[str, str], bool]:
        """Return the entries to store, and whether a caller waits; set `_sending` to what is new in them.

        What a caller waits for is always written: only a write proves that the known version is still stored.
        """
        # Left over from a write that failed. A floor that was replaced since then must not be published.
        for entry in self._sending:
            if self._pending.get(entry.uid) is not entry:
                entry.fail(_superseded(entry.uid))
        for entry in list(self._pending.values()):
            if entry.accepted is not None and entry.accepted.cancelled():
                self._restore(entry)  # no raise follows, so an HPA must not read this floor
        awaited = [entry for entry in self._pending.values() if entry.is_awaited]
        self._sending = [entry for entry in self._pending.values() if not entry.is_awaited]
        known = self._published | {entry.uid: entry for entry in self._sending}
        texts = dict(stored)
        for uid, entry in known.items():
            texts.pop(uid, None)
            if entry.text is not None:
                texts[uid] = entry.text
        self._admit(awaited, texts, known)
        return texts, any(entry.is_awaited for entry in self._sending)

    def _admit(
        self, awaited: Sequence[_FloorEntry], texts: dict[str, str], known: Mapping[str, _FloorEntry]
    ) -> None:
        """Add the entries that fit to the texts. One that does not fit fails alone, and with it its raise.

        Checked here and not when a floor is submitted: only now it is known what else the slice stores.
        """
        sizes: Counter[str] = Counter()
        for uid, text in texts.items():
            sizes[known[uid].namespace if uid in known else ""] += _size(uid, text)
        for entry in awaited:
            assert entry.text is not None
            more = _size(entry.uid, entry.text) - _size(entry.uid, texts.get(entry.uid))
            if more > 0 and (sizes.total() + more > LIMIT or sizes[entry.namespace] + more > SHARE):
                message = (
                    f"the ConfigMap {self._config_map.name} would hold more than {LIMIT:,} bytes, "
                    f"or more than {SHARE:,} of the namespace {entry.namespace}"
                )
                entry.fail(errors.KubernetesError(0, "TooLarge", message))
                self._restore(entry)
                continue
            sizes[entry.namespace] += more
            texts[entry.uid] = entry.text
            self._sending.append(entry)

    def _decode(self, texts: Mapping[str, str]) -> dict[str, Floor]:
        try:
            return decode_floors(texts)
        except ValueError as error:
            message = (
                f"the ConfigMap {self._config_map.name} holds an entry that is not a floor ({error}); "
                "delete the entry or the ConfigMap: Fastpath then continues from the current replica counts"
            )
            raise errors.KubernetesError(0, "Decode", message) from error


def _size(uid: str, text: str | None) -> int:
    return 0 if text is None else len(uid) + len(text.encode())


def _superseded(uid: str) -> errors.KubernetesError:
    message = f"the floor of {uid} was not published: a newer one has replaced it"
    return errors.KubernetesError(0, "Superseded", message)
