"""Who may pass: the check of a call's key, signature, time and novelty, as Flower's nodes sign their calls.

A node signs the time of a call with its key, and sends key, time and signature as headers. The signature does not cover
the body, which TLS protects, so a call that was seen once is not let in again.
"""

import time
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from headstart.deploy.credentials import public_key
from headstart.deploy.roster import FILE, Roster
from headstart.errors import UsageError

__all__ = ["KEY", "SIGNATURE", "TIME", "Doorkeeper", "Refused", "signed_headers"]

KEY, TIME, SIGNATURE = "flwr-public-key", "flwr-timestamp", "flwr-signature"
EARLY, LATE = 10.0, 310.0
"""How many seconds a clock may be ahead, and how old a call may be."""


class Refused(Exception):
    """A call that is not let through."""

    def __init__(self, reason: str, site: str = "", status: int = 401):
        super().__init__(reason)
        self.reason, self.site, self.status = reason, site, status


class Doorkeeper:
    """Knows the roster of a server's folder, as it is at the moment, and which calls were made of late."""

    def __init__(self, server: Path):
        self._server = server
        self._read_at: tuple[int, int] | None = None
        self._active: dict[bytes, str] = {}
        self._revoked: dict[bytes, str] = {}
        self._seen: dict[tuple[bytes, int], float] = {}
        self._swept = 0.0

    def admit(self, headers: Mapping[str, str]) -> str:
        """The name of the site that makes a call with these headers, or `Refused`."""
        self._look()
        try:
            key, signature = (b64decode(headers[name], validate=True) for name in (KEY, SIGNATURE))
            stamp = headers[TIME]
            age = (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()
        except KeyError as error:
            raise Refused("no key") from error
        except (NotBase64, ValueError, TypeError) as error:
            raise Refused("headers that are none of a node's") from error
        if key in self._revoked:
            raise Refused("a key that was revoked", self._revoked[key])
        if key not in self._active:
            raise Refused("a key that is not on the roster")
        site = self._active[key]
        if not -EARLY < age < LATE:
            raise Refused(f"a clock that differs by {abs(age):.0f} seconds", site)
        try:
            elliptic = serialization.load_pem_public_key(key)
            assert isinstance(elliptic, ec.EllipticCurvePublicKey)
            elliptic.verify(signature, stamp.encode("ascii"), ec.ECDSA(hashes.SHA256()))
            # Of the two numbers of a signature the second can be changed by anyone so that it still holds.
            nonce, _ = decode_dss_signature(signature)
        except (InvalidSignature, ValueError, UnicodeError) as error:
            raise Refused("a signature that does not hold", site) from error
        self._note(site, key, nonce)
        return site

    def _note(self, site: str, key: bytes, nonce: int) -> None:
        now = time.monotonic()
        if now - self._swept > EARLY:
            self._seen = {call: until for call, until in self._seen.items() if until > now}
            self._swept = now
        if (key, nonce) in self._seen:
            raise Refused("a call that was made before", site)
        self._seen[key, nonce] = now + EARLY + LATE

    def _look(self) -> None:
        """Read the roster, if it has changed; one that is half edited leaves the last one in force."""
        state = (self._server / FILE).stat()
        stamp = (state.st_mtime_ns, state.st_ino)
        if stamp == self._read_at:
            return
        try:
            roster = Roster.read(self._server)
            active = roster.keys()
            revoked = {public_key(m.key): name for name, m in roster.sites.items() if m.revoked}
        except UsageError:
            if self._read_at is None:
                raise
            return
        self._active, self._revoked, self._read_at = active, revoked, stamp


def signed_headers(private: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """The headers of a call by the node that has this key."""
    stamp = datetime.now(UTC).isoformat()
    key = private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    signature = private.sign(stamp.encode("ascii"), ec.ECDSA(hashes.SHA256()))
    return {KEY: b64encode(key).decode(), TIME: stamp, SIGNATURE: b64encode(signature).decode()}
