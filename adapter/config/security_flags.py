"""The flags of authentication and authorization, as data: a part of the table in `flagtable`.

Law: names, kinds and defaults are those of the Kubernetes API server library, for servers that delegate both; `anonymous-auth`
is kube-apiserver's.
"""

from collections.abc import Iterator

from adapter.config.pflag import Flag, Kind

SECURITY = "Authentication and authorization"


def security_flags() -> Iterator[Flag]:
    """Yield how callers are authenticated and authorized; each sets the option of its name."""
    only = "Only with --requestheader-client-ca-file; else the ConfigMap says it."
    fallback = "Without it the pod's service account, else --lister-kubeconfig."
    for name, kind, default, text, metavar in (
        (
            "authentication-kubeconfig",
            Kind.TEXT,
            "",
            f"Kubeconfig for token reviews and the look-up of authorities. {fallback}",
            "file",
        ),
        (
            "authentication-skip-lookup",
            Kind.BOOL,
            "false",
            "Leave the ConfigMap kube-system/extension-apiserver-authentication alone: only the files given are believed.",
            "",
        ),
        (
            "authentication-tolerate-lookup-failure",
            Kind.BOOL,
            "false",
            "Be ready although that ConfigMap cannot be read; only bearer tokens name a caller until it can.",
            "",
        ),
        (
            "authentication-token-webhook-cache-ttl",
            Kind.DURATION,
            "10s",
            "How long the answer of a token review is used again.",
            "",
        ),
        (
            "anonymous-auth",
            Kind.BOOL,
            "true",
            "Take callers without credentials for system:anonymous, whose rights the API server knows; else they get open paths only.",
            "",
        ),
        (
            "client-ca-file",
            Kind.TEXT,
            "",
            "Authorities of client certificates, instead of the ConfigMap's; read again when it changes.",
            "file",
        ),
        (
            "requestheader-client-ca-file",
            Kind.TEXT,
            "",
            "Authorities of front proxies, which may speak for others, instead of the ConfigMap's; read again when it changes.",
            "file",
        ),
        (
            "requestheader-allowed-names",
            Kind.LIST,
            "",
            f"Common names that a front proxy's certificate may have; without them any. {only}",
            "names",
        ),
        (
            "requestheader-username-headers",
            Kind.LIST,
            "x-remote-user",
            f"Headers in which a front proxy names the user. {only}",
            "headers",
        ),
        (
            "requestheader-uid-headers",
            Kind.LIST,
            "",
            f"Headers with the user's uid, such as x-remote-uid; without them no such header is believed. {only}",
            "headers",
        ),
        (
            "requestheader-group-headers",
            Kind.LIST,
            "x-remote-group",
            f"Headers with the user's groups, one for each. {only}",
            "headers",
        ),
        (
            "requestheader-extra-headers-prefix",
            Kind.LIST,
            "x-remote-extra-",
            f"Beginnings of headers with more about the user. {only}",
            "prefixes",
        ),
        ("authorization-kubeconfig", Kind.TEXT, "", f"Kubeconfig for access reviews. {fallback}", "file"),
        (
            "authorization-always-allow-paths",
            Kind.LIST,
            "/healthz,/readyz,/livez",
            "Paths that need no authorization; one that ends with * stands for all that begin with it.",
            "paths",
        ),
        (
            "authorization-webhook-cache-authorized-ttl",
            Kind.DURATION,
            "10s",
            "How long a permission is used again.",
            "",
        ),
        (
            "authorization-webhook-cache-unauthorized-ttl",
            Kind.DURATION,
            "10s",
            "How long a refusal is used again.",
            "",
        ),
    ):
        yield Flag(name, kind, default, text, SECURITY, name.replace("-", "_"), metavar=metavar)
