"""A federation of real processes: SuperLink, gateway, SuperNodes and workers.

Whoever does not belong is refused, each in its own way, while it trains; and its numbers are the simulator's. One
federation serves all tests of this file, which have to stay together in their order.
"""

import subprocess

import httpx
import numpy as np
import psutil
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StartRunRequest
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.supercore.control import ControlHttpClient

import headstart as hs
from headstart.deploy.admission import signed_headers
from headstart.deploy.credentials import make_authority, make_node_key, public_key, public_line
from headstart.deploy.processes import end, environment
from headstart.deploy.site_watch import greet
from headstart.errors import UsageError
from tests.deploy.real.parity import assert_simulated
from tests.deploy.real.trial import METHODS, ROUNDS

pytestmark = pytest.mark.federation

PORT = 61500
"""Of intruders' own servers, from here on."""


class Intruder:
    """A SuperNode that tries to get in."""

    def __init__(self, folder, number, address, *options):
        self.log = folder / f"intruder-{number}.log"
        command = [
            "flower-supernode", "--superlink", address, "--host", "127.0.0.1", "--port", str(PORT + number),
            "--max-retries", "1", "--max-wait-time", "5", *map(str, options),
        ]  # fmt: skip
        env = environment(folder / f"home-{number}")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["/usr/bin/env", *command], stdout=log, stderr=log, env=env, start_new_session=True
            )

    def said(self, seconds=120.0):
        """What it said until it gave up."""
        self.process.wait(seconds)
        return self.log.read_text(errors="replace")


@pytest.fixture(scope="module")
def intruders(trial, tmp_path_factory):
    """All that try it with Flower's own node, at the same time."""
    folder = tmp_path_factory.mktemp("intruders")
    gone = hs.deploy.add(trial.folder, "gone")
    hs.deploy.revoke(trial.folder, "gone")
    make_node_key(folder / "unknown")
    make_authority(folder / "other.key", folder / "other.crt")
    authority, member = trial.server.authority, trial.site("site-1").key
    # A key is in use once its own site is there.
    online = public_key(public_line(member))
    link = trial.link()
    trial.until(lambda: _quietly(lambda: link.nodes()[online].online))
    known = ("--root-certificates", authority, "--auth-supernode-private-key")
    trying = {
        "unregistered": Intruder(folder, 0, trial.gate, *known, folder / "unknown"),
        "revoked": Intruder(folder, 1, trial.gate, *known, gone / "key"),
        "twice": Intruder(folder, 2, trial.gate, *known, member),
        "keyless": Intruder(folder, 3, trial.gate, "--root-certificates", authority),
        "other authority": Intruder(
            folder, 4, trial.gate, "--root-certificates", folder / "other.crt", *known[2:], member
        ),
        "no tls": Intruder(folder, 5, trial.gate, "--insecure"),
    }
    yield trying
    end([intruder.process.pid for intruder in trying.values()])
    link.close()


def _quietly(ask):
    try:
        return ask()
    except (hs.HeadstartError, KeyError):
        return None


def _refusals(trial):
    return {(event.get("site"), event["reason"]) for event in trial.events("refused")}


def test_a_key_that_is_not_on_the_roster_is_refused(trial, intruders):
    assert "Failed to initialize the connection" in intruders["unregistered"].said()
    assert (None, "a key that is not on the roster") in _refusals(trial)


def test_a_key_that_was_revoked_is_refused(trial, intruders):
    assert "Failed to initialize the connection" in intruders["revoked"].said()
    assert ("gone", "a key that was revoked") in _refusals(trial)


def test_a_key_that_is_in_use_is_refused(trial, intruders):
    assert "[code: 2004]" in intruders["twice"].said()


def test_a_node_without_a_key_is_refused(trial, intruders):
    assert "Failed to initialize the connection" in intruders["keyless"].said()
    assert any(event["call"] == "/v1/fleet/register-node" for event in trial.events("refused"))


def test_a_node_that_trusts_another_authority_does_not_talk_to_the_server(trial, intruders):
    assert "CERTIFICATE_VERIFY_FAILED" in intruders["other authority"].said()


def test_a_node_without_tls_does_not_get_a_word_in(trial, intruders):
    assert "SuperNode ID" not in intruders["no tls"].said()
    with pytest.raises(httpx.TransportError):
        httpx.post(f"http://{trial.gate}/v1/fleet/pull-messages")


def test_the_operators_calls_do_not_pass_the_gateway(trial):
    client = ControlHttpClient.from_server_address(trial.gate, False, trial.server.authority.read_bytes(), [])
    for call, request in (
        (client.RegisterNode, RegisterNodeRequest(public_key=public_key(public_line(trial.site("site-1").key)))),
        (client.StartRun, StartRunRequest()),
        (client.ListNodes, ListNodesRequest()),
    ):
        with pytest.raises(httpx.HTTPStatusError) as refused:
            call(request)
        assert refused.value.response.status_code == 403
    client.close()


def test_the_superlink_listens_to_its_own_machine_only(trial):
    door = trial.server.door()
    listening = {
        connection.laddr
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == door.superlink_port
    }
    assert {address.ip for address in listening} == {"127.0.0.1"}


class Member:
    """A site that belongs, and does what it should not, by hand."""

    def __init__(self, trial, name):
        self.trial, self.place = trial, trial.site(name)
        self.key = load_ssh_private_key(self.place.key.read_bytes(), None)
        with_key = trial.until(lambda: _quietly(lambda: trial.link().nodes()))
        self.number = with_key[public_key(public_line(self.place.key))].number

    def call(self, path, request, headers=None):
        return httpx.post(
            f"https://{self.trial.gate}/v1/fleet/{path}", content=request.SerializeToString(), timeout=60.0,
            headers={"content-type": "application/protobuf"} | (headers or signed_headers(self.key)),
            verify=str(self.place.authority),
        )  # fmt: skip


@pytest.fixture(scope="module")
def member(trial):
    return Member(trial, "site-2")


def _reply(source, node, reply_to="0" * 64):
    metadata = Metadata(src_node_id=source, dst_node_id=1, reply_to_message_id=reply_to)
    return PushMessagesRequest(node=Node(node_id=node), messages_list=[Message(metadata=metadata)])


def test_a_reply_that_is_sent_again_is_refused(trial, member):
    headers = signed_headers(member.key)
    first = member.call("push-messages", _reply(member.number, member.number), headers)
    assert first.status_code != 401
    again = member.call("push-messages", _reply(member.number, member.number), headers)
    assert (again.status_code, again.json()["detail"]) == (401, "a call that was made before")
    assert ("site-2", "a call that was made before") in _refusals(trial)


def test_a_site_cannot_speak_or_listen_for_another(trial, member):
    other = Member(trial, "site-3").number
    forged = member.call("push-messages", _reply(other, member.number))
    assert (forged.status_code, forged.json()["detail"]) == (401, "an answer in another node's name")
    # Flower itself knows which node has which key.
    assert member.call("push-messages", _reply(other, other)).status_code == 401
    assert member.call("pull-messages", PullMessagesRequest(node=Node(node_id=other))).status_code == 401


def test_a_site_that_calls_itself_by_another_name_is_told_so(trial, tmp_path):
    place = trial.site("site-1")
    with pytest.raises(UsageError, match="says that this is site-2, but its key is the one of site-1"):
        greet(type(place)(place.folder, "site-2", place.server, place.port, {}))


def test_training_was_unharmed(trial, intruders, simulated):
    for intruder in intruders.values():
        intruder.said()
    assert trial.wait() == 0, trial.said()
    assert trial.events("left_out") == []
    assert [event["round"] for event in trial.events("closed")] == METHODS * list(range(ROUNDS))
    for name in ("site-1", "site-2", "site-3"):
        assert {model.stem for model in trial.site(name).models.iterdir()} == set(simulated.results)


def test_five_rounds_are_the_simulators(trial, simulated):
    """Three methods over three sites: partial cohorts, unequal sites, clients that count by their samples."""
    assert trial.wait() == 0, trial.said()
    assert_simulated(trial.server.folder, trial.folder / "sites", simulated)
    record = hs.load_run(trial.server.run)
    for label, result in simulated.results.items():
        got, want = record.methods[label].table, result.table
        assert got["client"].to_pylist() == want["client"].to_pylist()
        np.testing.assert_allclose(got["loss"].to_numpy(), want["loss"].to_numpy(), rtol=1e-5)


def test_no_process_is_left_behind(trial):
    trial.wait()
    left = [process.info for process in psutil.process_iter(["cmdline", "status"])
            if str(trial.folder) in " ".join(process.info["cmdline"] or [])
            and process.info["status"] != psutil.STATUS_ZOMBIE]  # fmt: skip
    assert left == []
