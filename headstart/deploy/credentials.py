"""Who is who: a certificate authority of the federation's own, the server's certificate, and one key per site.

The authority's certificate is all that a site needs to know the server by. A site is known by its key: an elliptic one,
in the form that OpenSSH uses, so that a site can also make its own with ``ssh-keygen -t ecdsa -b 384``.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headstart.deploy.whole import write_secret, write_whole
from headstart.errors import UsageError

__all__ = [
    "LOOPBACK",
    "make_authority",
    "make_node_key",
    "make_server_certificate",
    "public_key",
    "public_line",
    "renew_server_certificate",
]

LOOPBACK = ("localhost", "127.0.0.1")
"""Names that every server's certificate has: its own processes talk to one another there."""
VALID = timedelta(days=3650)
RENEWED_BEFORE = timedelta(days=30)
CURVE = ec.SECP384R1


def make_authority(key_file: Path, certificate_file: Path) -> None:
    """Make an authority that can vouch for servers and for nothing else."""
    key = ec.generate_private_key(CURVE())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headstart federation authority")])
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _certificate(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    _write_key(key_file, key)
    write_whole(certificate_file, builder.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM))


def make_server_certificate(
    authority_key: Path, authority_certificate: Path, key_file: Path, certificate_file: Path, names: Sequence[str]
) -> None:
    """Make a server's key and its certificate for ``names``: host names and addresses under which sites reach it."""
    authority = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority_certificate.read_bytes())
    key = ec.generate_private_key(CURVE())
    known = list(dict.fromkeys([*names, *LOOPBACK]))
    builder = (
        _certificate(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headstart server")]), issuer.subject, key.public_key()
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in known]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
    )
    _write_key(key_file, key)
    write_whole(certificate_file, builder.sign(authority, hashes.SHA384()).public_bytes(serialization.Encoding.PEM))


def renew_server_certificate(tls: Path, names: Sequence[str]) -> bool:
    """Make a server's certificate anew if it lacks a name or ends within a month; tells whether it was."""
    authority, key, certificate = tls / "ca.key", tls / "server.key", tls / "server.crt"
    try:
        old = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{certificate} is no certificate: {error}.", "Bring it back from a copy.") from error
    named = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lasts = old.not_valid_after_utc > datetime.now(UTC) + RENEWED_BEFORE
    if lasts and all(_alternative(name) in named for name in names):
        return False
    if not authority.exists():
        raise UsageError(
            f"{certificate} does not name all of {', '.join(names)}, or ends soon.",
            f"Bring the authority's key back to {authority}: then another one is made.",
        )
    key.unlink(missing_ok=True)
    make_server_certificate(authority, tls / "ca.crt", key, certificate, names)
    return True


def make_node_key(path: Path) -> str:
    """Make a site's private key, which only its owner may read; its public half is returned as one line."""
    key = ec.generate_private_key(CURVE())
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    write_secret(path, content)
    return _line(key.public_key())


def public_line(path: Path) -> str:
    """The public key in a file, as one line; the file may hold the private one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Name the site's public key file.") from error
    try:
        key = (
            serialization.load_ssh_private_key(content, None).public_key()
            if b"PRIVATE KEY" in content
            else serialization.load_ssh_public_key(content)
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path} holds no key: {error}.", _HOW) from error
    return _line(_elliptic(key, str(path)))


def public_key(line: str, where: str = "The key") -> bytes:
    """The public key of such a line, in the form in which Flower names a node."""
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{where} is no public key: {error}.", _HOW) from error
    return _elliptic(key, where).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


_HOW = "Make one with: ssh-keygen -t ecdsa -b 384 -N '' -f key"


def _elliptic(key: object, where: str) -> ec.EllipticCurvePublicKey:
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UsageError(f"{where} is not an elliptic-curve key.", _HOW)
    return key


def _line(key: ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks of sites differ
        .not_valid_after(now + VALID)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    write_secret(
        path,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
