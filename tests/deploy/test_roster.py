"""Keys, certificates and the roster."""

import shutil
import ssl
import stat
import subprocess

import pytest

from headstart.deploy.credentials import (
    make_authority,
    make_node_key,
    make_server_certificate,
    public_key,
    public_line,
    renew_server_certificate,
)
from headstart.deploy.roster import LiveRoster, Roster, read_roster
from headstart.errors import UsageError


def test_a_server_is_known_by_its_names_to_who_has_the_authority(tmp_path):
    make_authority(tmp_path / "ca.key", tmp_path / "ca.crt")
    names = ["server.example.org", "10.0.0.7", "fd00::1"]
    make_server_certificate(tmp_path / "ca.key", tmp_path / "ca.crt", tmp_path / "s.key", tmp_path / "s.crt", names)
    for name in [*names, "localhost", "127.0.0.1"]:
        assert _handshake(tmp_path / "s.crt", tmp_path / "s.key", tmp_path / "ca.crt", name)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(tmp_path / "s.crt", tmp_path / "s.key", tmp_path / "ca.crt", "other.example.org")
    make_authority(tmp_path / "other.key", tmp_path / "other.crt")
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(tmp_path / "s.crt", tmp_path / "s.key", tmp_path / "other.crt", "localhost")


def _handshake(certificate, key, authority, name):
    """Both ends of TLS in memory, by OpenSSL."""
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(authority))
    serving.load_cert_chain(certificate, key)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(down, up, server_hostname=name)
    server = serving.wrap_bio(up, down, server_side=True)
    for _ in range(5):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.version() in ("TLSv1.2", "TLSv1.3")


def test_keys_are_those_of_openssh_and_of_flower(tmp_path):
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve

    line = make_node_key(tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    private = load_ssh_private_key((tmp_path / "key").read_bytes(), None)
    assert public_key(line) == public_key_to_bytes(private.public_key())
    assert uses_nist_ec_curve(private.public_key())
    (tmp_path / "key.pub").write_text(f"{line} me@here\n")
    assert public_line(tmp_path / "key.pub") == public_line(tmp_path / "key") == line
    with pytest.raises(UsageError, match="is there already"):
        make_node_key(tmp_path / "key")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_key_made_by_ssh_keygen_is_taken_and_other_kinds_are_not(tmp_path):
    for kind in (("ecdsa", "-b", "384"), ("ed25519",)):
        command = ["ssh-keygen", "-q", "-N", "", "-t", *kind, "-f", str(tmp_path / kind[0])]
        subprocess.run(command, check=True)
    assert public_line(tmp_path / "ecdsa.pub").startswith("ecdsa-sha2-nistp384 ")
    with pytest.raises(UsageError, match="not an elliptic-curve key"):
        public_line(tmp_path / "ed25519.pub")


@pytest.mark.parametrize("content", ["", "hello", "ssh-rsa AAAA", "ecdsa-sha2-nistp384 !!!"])
def test_what_is_no_key_is_refused_with_a_way_to_make_one(tmp_path, content):
    (tmp_path / "key.pub").write_text(content)
    with pytest.raises(UsageError, match="ssh-keygen"):
        public_line(tmp_path / "key.pub")


def test_sites_come_and_go_and_neither_key_nor_name_comes_back(tmp_path):
    lines = [make_node_key(tmp_path / f"key{i}") for i in range(3)]
    roster = Roster({}).with_site("north", lines[0]).with_site("south", lines[1])
    roster.without_site("north").write(tmp_path)
    assert read_roster(tmp_path) == {public_key(lines[1]): "south"}
    again = Roster.read(tmp_path)
    with pytest.raises(UsageError, match=r"north already\. It was revoked"):
        again.with_site("north", lines[2])
    with pytest.raises(UsageError, match="revoked: it is the key of north"):
        again.with_site("west", lines[0])
    with pytest.raises(UsageError, match="in use: it is the key of south"):
        again.with_site("west", lines[1])
    with pytest.raises(UsageError, match="Did you mean 'south'"):
        again.without_site("sout")
    with pytest.raises(UsageError, match="cannot be a site's name"):
        again.with_site("../up", lines[2])


@pytest.mark.parametrize(
    "content",
    [
        "[sites", "sites = 3", "[sites.a]\nkee = 'x'", "[sites.a]\nkey = 'x'", "[sites.a]\nkey = 5",
        "[sites.'a/b']\nkey = 'KEY'", "[sites.a]\nkey = 'KEY'\n[sites.b]\nkey = 'KEY me@here'",
        "[sites.a]\nkey = 'KEY'\nrevoked = true",
    ],
)  # fmt: skip
def test_a_roster_that_was_mangled_by_hand_is_refused(tmp_path, content):
    (tmp_path / "roster.toml").write_text(content.replace("KEY", make_node_key(tmp_path / "key")))
    with pytest.raises(UsageError, match=r"roster|key|name"):
        read_roster(tmp_path)


def test_a_roster_in_the_making_leaves_the_last_one_in_force(tmp_path):
    told = []
    roster = Roster({}).with_site("north", make_node_key(tmp_path / "north"))
    roster.write(tmp_path)
    live = LiveRoster(tmp_path, told.append)
    for content in ("[sites", None):
        if content is None:
            (tmp_path / "roster.toml").unlink()
        else:
            (tmp_path / "roster.toml").write_text(content)
        assert [list(live.look().keys.values()) for _ in range(2)] == [["north"]] * 2
    assert len(told) == 2
    assert "is not a roster" in told[0]
    roster.without_site("north").write(tmp_path)
    assert (live.look().keys, list(live.revoked.values())) == ({}, ["north"])


def test_a_certificate_that_lacks_a_name_is_made_again(tmp_path):
    tls = [tmp_path / name for name in ("ca.key", "ca.crt", "server.key", "server.crt")]
    make_authority(*tls[:2])
    make_server_certificate(*tls, ["old.example.org"])
    assert not renew_server_certificate(tmp_path, ["old.example.org", "localhost"])
    assert renew_server_certificate(tmp_path, ["new.example.org", "10.0.0.7"])
    for name in ("new.example.org", "10.0.0.7"):
        assert _handshake(tls[3], tls[2], tls[1], name)
    assert stat.S_IMODE(tls[2].stat().st_mode) == 0o600
    tls[0].unlink()
    assert not renew_server_certificate(tmp_path, ["new.example.org"])
    with pytest.raises(UsageError, match=r"server.crt does not name all of other.example.org"):
        renew_server_certificate(tmp_path, ["other.example.org"])


def test_a_folder_without_a_roster_is_no_servers(tmp_path):
    with pytest.raises(UsageError, match="headstart deploy init"):
        read_roster(tmp_path)
