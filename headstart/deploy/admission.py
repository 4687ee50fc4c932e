"""Who may pass: the check of a call's key, signature, time and novelty, as Flower's nodes sign their calls.

A node signs the time of a call with its key, and sends key, time and signature as headers. The signature does not cover
the body, which TLS protects, so a call that was seen once is not let in again.
"""

import hashlib
import time
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from headstart.deploy.roster import LiveRoster

__all__ = ["CLOCK", "KEY", "SIGNATURE", "TIME", "Doorkeeper", "Refused", "signed_headers"]

KEY, TIME, SIGNATURE = "flwr-public-key", "flwr-timestamp", "flwr-signature"
CLOCK = "a clock that differs"
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
        self._roster = LiveRoster(server)
        self._calls = _Calls(server)

    def admit(self, headers: Mapping[str, str]) -> str:
        """The name of the site that makes a call with these headers, or `Refused`."""
        roster = self._roster.look()
        try:
            key, signature = (b64decode(headers[name], validate=True) for name in (KEY, SIGNATURE))
            stamp = headers[TIME]
            age = (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()
        except KeyError as error:
            raise Refused("no key") from error
        except (NotBase64, ValueError, TypeError) as error:
            raise Refused("headers that are none of a node's") from error
        if key in roster.revoked:
            raise Refused("a key that was revoked", roster.revoked[key])
        if key not in roster.keys:
            raise Refused("a key that is not on the roster")
        site = roster.keys[key]
        if not -EARLY < age < LATE:
            raise Refused(f"{CLOCK} by {abs(age):.0f} seconds", site)
        try:
            elliptic = serialization.load_pem_public_key(key)
            assert isinstance(elliptic, ec.EllipticCurvePublicKey)
            elliptic.verify(signature, stamp.encode("ascii"), ec.ECDSA(hashes.SHA256()))
            # Of the two numbers of a signature the second can be changed by anyone so that it still holds.
            nonce, _ = decode_dss_signature(signature)
        except (InvalidSignature, ValueError, UnicodeError) as error:
            raise Refused("a signature that does not hold", site) from error
        if not self._calls.new(key, nonce):
            raise Refused("a call that was made before", site)
        return site


class _Calls:
    """The calls of late, also those that were let in by a gateway which has ended since.

    There are two files: once the first is so old that nothing older is let in any more, it takes the other's place.
    """

    def __init__(self, folder: Path):
        self._path = folder / "gateway.calls"
        self._before = self._path.with_suffix(".before")
        self._older, self._newer = (_lines(path) for path in (self._before, self._path))
        self._began = time.monotonic()

    def new(self, key: bytes, nonce: int) -> bool:
        """Whether this is none of them; it is from now on."""
        call = hashlib.sha256(key + b"%d" % nonce).hexdigest()[:32]
        if call in self._newer or call in self._older:
            return False
        if time.monotonic() - self._began > EARLY + LATE:
            self._older, self._newer, self._began = self._newer, set(), time.monotonic()
            with suppress(OSError):
                self._path.replace(self._before)
        self._newer.add(call)
        with suppress(OSError), self._path.open("a") as file:  # without a disk, this gateway knows its own
            file.write(f"{call}\n")
        return True


def _lines(path: Path) -> set[str]:
    try:
        return set(path.read_text(errors="replace").split())
    except OSError:
        return set()


def signed_headers(private: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """The headers of a call by the node that has this key."""
    stamp = datetime.now(UTC).isoformat()
    key = private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    signature = private.sign(stamp.encode("ascii"), ec.ECDSA(hashes.SHA256()))
    return {KEY: b64encode(key).decode(), TIME: stamp, SIGNATURE: b64encode(signature).decode()}
