"""How `fastpath doctor` reads from the API server: once, and with the server's words for a refusal."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient
from adapter.model.autoscaling.hpa import decode_scalar

_T = TypeVar("_T")
_Self = TypeVar("_Self")
_P = ParamSpec("_P")


def once(
    read: Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]:
    """Make a method read once for each set of arguments: further calls await the result of the first."""

    @functools.wraps(read)
    async def shared(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        tasks: dict[object, asyncio.Task[_T]] = vars(self).setdefault("_reads", {})
        key = (read.__name__, args)
        if key not in tasks:
            tasks[key] = asyncio.create_task(read(self, *args, **kwargs))
        return await tasks[key]

    return shared


async def fetch(client: KubernetesClient, path: str, form: type[_T]) -> _T:
    """Return what is at a path. KubernetesError."""
    body = await client.get(path)
    try:
        return msgspec.json.decode(body.content, type=form, dec_hook=decode_scalar)
    except (msgspec.MsgspecError, ValueError) as error:
        raise KubernetesError(0, "Decode", f"cannot read what is at {path}: {error}") from error


def why(error: Exception) -> str:
    """Return an error as the server worded it."""
    return (error.said if isinstance(error, KubernetesError) else "") or str(error)
