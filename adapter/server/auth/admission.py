"""Admission of requests: identifies the caller, authorizes the access, parses the rest of the query.

Everything that is not open to all callers is allowed by an access review of exactly what is answered.
Admission has two steps. `admit_now` decides from certificates and cached reviews, without a turn of the event
loop; that is all that a repeated request needs. Where the API server has to be asked it returns a
`PendingAdmission`, and `admit` waits for the reviews. Callers that wait count in queues: one for each user,
one for the unknown tokens of each address, and one for anonymous callers. The handler bounds each queue, so
that a flood of one kind, such as made-up tokens, does not delay the callers of another.

Anonymous requests cost a client nothing. Their selectors are therefore never parsed before the review, which
asks for the whole list instead, and the length of their queries is bounded.
"""

import asyncio
from typing import Literal, NamedTuple

from adapter import errors
from adapter.model.identity import ANONYMOUS, User
from adapter.server.api import query_string
from adapter.server.api.query_string import Question
from adapter.server.api.routing import Route
from adapter.server.auth.authentication import Authenticator, RequestCredentials
from adapter.server.auth.authorization import Attributes, Authorizer
from adapter.server.http.requests import HTTPRequest


class ReviewQueue(NamedTuple):
    """A queue of callers: of one user, with unknown tokens from one address, or anonymous."""

    standing: Literal["named", "token", "anonymous"]
    of: str = ""


class PendingAdmission(NamedTuple):
    """A request that needs a review. `user` is None where its token has to be reviewed first."""

    user: User | None
    credentials: RequestCredentials
    queue: ReviewQueue


class Admission:
    """Admits requests.

    Without `anonymous`, callers without credentials get the open paths and nothing else.
    """

    def __init__(
        self, authenticator: Authenticator, authorizer: Authorizer, *, anonymous: bool = True
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._anonymous = anonymous
        self.judge = authenticator.judge

    def admit_now(self, request: HTTPRequest, route: Route) -> User | PendingAdmission:
        """Return the caller if the access is allowed, else what to give to `admit`.

        Raises BadRequestError, UnauthorizedError or ForbiddenError. An unknown path is not authorized.
        """
        peer = request.connection.peer
        if peer is None:  # there was no handshake
            raise errors.UnauthorizedError
        user, credentials, known = self._authenticator.identify_now(request.raw_headers, peer)
        if user is not None:
            request.caller = user
            is_slow = route.is_list and route.question is None and len(route.query) > query_string.LONG_QUERY
            if user is ANONYMOUS or not is_slow:
                wanted = _wanted(request, route, user)
                if wanted is None or self._check(user, wanted, credentials):
                    return user if user is not ANONYMOUS else _check_length(user, route)
        name = user.name if user is not None else known
        if user is ANONYMOUS:
            queue = ReviewQueue("anonymous")
        else:
            queue = ReviewQueue("named", name) if name else ReviewQueue("token", request.connection.remote)
        return PendingAdmission(user, credentials, queue)

    async def admit(self, request: HTTPRequest, route: Route, pending: PendingAdmission) -> User:
        """Return the caller once reviews allow the access.

        Raises as `admit_now`, and InternalError and TooManyRequestsError.
        """
        user, credentials, _ = pending
        if user is None:
            user = request.caller = await self._authenticator.identify_by_token(
                credentials, request.connection.remote
            )
        if user is not ANONYMOUS and route.is_list:
            await parse_query(route)
        wanted = _wanted(request, route, user)
        if wanted is not None and not self._check(user, wanted, credentials):
            await self._authorizer.check(user, wanted)
        return _check_length(user, route)

    async def close(self) -> None:
        await self._authenticator.close()
        await self._authorizer.close()

    def _check(self, user: User, wanted: Attributes, credentials: RequestCredentials) -> bool:
        """Return whether the access is known to be allowed; False where a review has to decide."""
        if user is ANONYMOUS and not self._anonymous and not self._authorizer.is_open(wanted):
            raise errors.UnauthorizedError
        if credentials.impersonates:
            raise errors.ForbiddenError("forbidden: impersonation is not possible here", {})
        return self._authorizer.check_now(user, wanted)


async def parse_query(route: Route) -> Question | errors.StatusError:
    """Return what the query of a route asks; a long one is parsed in a thread. For known callers only."""
    if route.question is None and len(route.query) > query_string.LONG_QUERY:
        await asyncio.to_thread(route.parse_query)
    return route.parse_query()


def _wanted(request: HTTPRequest, route: Route, user: User) -> Attributes | None:
    """Return the access to authorize; None where nothing will be answered, since the path itself is wrong."""
    wanted = route.bare_attributes if user is ANONYMOUS else route.attributes
    if wanted is None and route.error is None:  # no access to authorize, so none is allowed
        raise errors.UnauthorizedError
    return wanted if wanted is None or request.method == "GET" else wanted.with_method(request.method)


def _check_length(user: User, route: Route) -> User:
    if user is ANONYMOUS and len(route.query) > query_string.ANONYMOUS_QUERY:
        limit = f"limit without credentials is {query_string.ANONYMOUS_QUERY} bytes"
        raise errors.BadRequestError(f"the query is too long: {limit}")
    return user
