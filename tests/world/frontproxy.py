"""The API server's own identity towards aggregated servers: files that it reads again when they change.

What lives here: an authority, the certificate that a front proxy shows, and their replacement. What does not:
what a cluster makes of the files (`aggregation`). A file is replaced whole, so that no program reads half of
one.
"""

from pathlib import Path

from tests.support.certificates import Signer

NAME = "front-proxy-client"
"""The common name that may speak for others, as kubeadm has it."""


class FrontProxy:
    """A front proxy with an authority of its own.

    `authorities` and `identity` are PEM files; the latter has the key too.
    """

    def __init__(self, directory: Path) -> None:
        self.authorities = directory / "front-proxy-ca.crt"
        self.identity = directory / "front-proxy-client.pem"
        self.signer = Signer("front-proxy-ca-1")
        """Who issued what it shows now."""
        self._directory = directory
        self.publish(self.signer)
        self.show(self.signer)

    def publish(self, *signers: Signer) -> None:
        """Have these authorities in the file, and no others."""
        draft = self._directory / "front-proxy-ca.draft"
        draft.write_text("".join(signer.pem for signer in signers))
        draft.replace(self.authorities)

    def show(self, signer: Signer) -> None:
        """Show a certificate of this authority from now on."""
        self.signer = signer
        signer.issue(NAME).write(self._directory).replace(self.identity)
