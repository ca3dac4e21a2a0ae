"""The options of authentication and authorization.

Names and defaults are those of the Kubernetes API server library for servers that delegate both to the API
server; `anonymous-auth` is kube-apiserver's.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from adapter.config import checks
from adapter.config.option_fields import CommandOptions, option
from adapter.config.pflag import FlagType

_security = partial(option, group="Authentication and authorization")

_ONLY = "Only with --requestheader-client-ca-file; else the ConfigMap says it."
_FALLBACK = "Without it the pod's service account, else --lister-kubeconfig."


@dataclass(frozen=True, kw_only=True)
class SecurityOptions(CommandOptions):
    """Who may call, and how callers prove who they are."""

    authentication_kubeconfig: str = _security(
        FlagType.TEXT,
        "",
        f"Kubeconfig for token reviews and the look-up of certificate authorities. {_FALLBACK}",
        metavar="file",
    )
    authentication_skip_lookup: bool = _security(
        FlagType.BOOL,
        "false",
        "Do not read the ConfigMap kube-system/extension-apiserver-authentication: only the files given "
        "are trusted.",
    )
    authentication_tolerate_lookup_failure: bool = _security(
        FlagType.BOOL,
        "false",
        "Be ready although that ConfigMap cannot be read; until it can, only bearer tokens authenticate.",
    )
    authentication_token_webhook_cache_ttl: float = _security(
        FlagType.DURATION,
        "10s",
        "How long the answer of a token review is cached; 0 asks each time.",
        check=checks.not_negative,
    )
    anonymous_auth: bool = _security(
        FlagType.BOOL,
        "true",
        "Take callers without credentials for system:anonymous, whose rights the API server knows; else they "
        "get only the paths that need no authorization.",
    )
    client_ca_file: str = _security(
        FlagType.TEXT,
        "",
        "Certificate authorities of client certificates, instead of the ConfigMap's; read again when it "
        "changes.",
        metavar="file",
    )
    requestheader_client_ca_file: str = _security(
        FlagType.TEXT,
        "",
        "Certificate authorities of front proxies, which may act for other users, instead of the "
        "ConfigMap's; read again when it changes.",
        metavar="file",
    )
    requestheader_allowed_names: tuple[str, ...] = _security(
        FlagType.LIST,
        "",
        f"Common names that a front proxy's certificate may have; without them any. {_ONLY}",
        metavar="names",
    )
    requestheader_username_headers: tuple[str, ...] = _security(
        FlagType.LIST,
        "x-remote-user",
        f"Headers in which a front proxy names the user; the first with a value counts. {_ONLY}",
        metavar="headers",
        check=checks.header_names,
    )
    requestheader_uid_headers: tuple[str, ...] = _security(
        FlagType.LIST,
        "",
        f"Headers with the user's uid, such as x-remote-uid; without them no such header is trusted. {_ONLY}",
        metavar="headers",
        check=checks.header_names,
    )
    requestheader_group_headers: tuple[str, ...] = _security(
        FlagType.LIST,
        "x-remote-group",
        f"Headers with the user's groups, one for each. {_ONLY}",
        metavar="headers",
        check=checks.header_names,
    )
    requestheader_extra_headers_prefix: tuple[str, ...] = _security(
        FlagType.LIST,
        "x-remote-extra-",
        f"Beginnings of headers with more about the user. {_ONLY}",
        metavar="prefixes",
        check=checks.header_names,
    )
    authorization_kubeconfig: str = _security(
        FlagType.TEXT,
        "",
        f"Kubeconfig for access reviews. {_FALLBACK}",
        metavar="file",
    )
    authorization_always_allow_paths: tuple[str, ...] = _security(
        FlagType.LIST,
        "/healthz,/readyz,/livez",
        "Paths that need no authorization; one that ends with * stands for all that begin with it.",
        metavar="paths",
        check=checks.open_paths,
    )
    authorization_webhook_cache_authorized_ttl: float = _security(
        FlagType.DURATION,
        "10s",
        "How long a permission is cached; 0 asks each time.",
        check=checks.not_negative,
    )
    authorization_webhook_cache_unauthorized_ttl: float = _security(
        FlagType.DURATION,
        "10s",
        "How long a refusal is cached; 0 asks each time.",
        check=checks.not_negative,
    )

    def notices(self, given: AbstractSet[str]) -> Iterator[str]:
        """Yield sentences about values that have no effect."""
        yield from super().notices(given)
        details = [
            f"--{name.replace('_', '-')}"
            for name in SecurityOptions.__dataclass_fields__
            if name in given and name.startswith("requestheader_") and name != "requestheader_client_ca_file"
        ]
        if details and not self.requestheader_client_ca_file:
            yield (
                "without --requestheader-client-ca-file the cluster's ConfigMap says what these flags say: "
                f"{', '.join(details)}"
            )
