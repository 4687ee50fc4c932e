"""The messenger in front of a SuperNode of Flower's own: whose messages it carries, and whose code it runs."""

import hashlib
import threading
import time
from dataclasses import replace
from urllib.parse import quote

import pytest
import uvicorn
from flwr.app import Context, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import _insert_message

from headstart.deploy.carrying import wrap
from headstart.deploy.messages import Head, Message
from headstart.deploy.messenger import Messenger
from headstart.deploy.trial import free_ports
from headstart.deploy.worker import Worker

SECRET = b"between the two"
RUN, NODE = 7, 8


class Node:
    """A SuperNode that has fetched messages, without a server."""

    def __init__(self):
        self.store = ObjectStoreFactory()
        states = NodeStateFactory(objectstore_factory=self.store)
        self.state = states.state()
        self.state.set_node_id(NODE)
        (self.port,) = free_ports(1)
        config = uvicorn.Config(create_app(states, SECRET), port=self.port, log_level="warning")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self):
        self._thread.start()
        while not self._server.started:
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join()

    def fetch(self, content, socket, run=RUN, whole=True):
        """Have a message of a run whose app is not one at all; its parts may never come."""
        code = b"that nobody here has asked for"
        app = Fab(hashlib.sha256(code).hexdigest(), code, {})
        self.state.store_run(replace(Run.create_empty(run), fab_hash=app.hash_str, series_id=run))
        self.state.store_fab(app)
        context = Context(run, NODE, {"socket": quote(str(socket))}, RecordDict(), {})
        self.state.set_run_series_context(run, context)
        self.state.create_task(TaskType.CLIENT_APP, run, fab_hash=app.hash_str)
        about = Metadata(run, "", 1, NODE, "", "", time.time(), 60.0, "train")
        message, store = make_message(about, content=wrap(content)), self.store.store()
        if whole:
            _insert_message(message, self.state, store)
        else:
            with no_object_id_recompute():
                message.metadata.__dict__["_message_id"] = message.object_id
                self.state.store_message(message)
                store.preregister(run, get_object_tree(message))

    def answer(self):
        """What was brought back."""
        for _ in range(200):
            if found := self.state.get_messages_legacy(is_reply=True):
                return found[0]
            time.sleep(0.05)
        raise AssertionError("nothing came")

    def parts(self, message):
        """What a message consists of, which comes after it."""
        store = self.store.store()
        names = [each.object_id for each in _tree(store.get_object_tree(message.metadata.message_id))]
        for _ in range(200):
            if all(found := [store.get(name) for name in names]):
                return found
            time.sleep(0.05)
        raise AssertionError("not all came")


@pytest.fixture
def node():
    with Node() as node:
        yield node


def test_a_message_goes_to_the_worker_and_back_and_no_code_that_came_with_it_is_run(node, tmp_path):
    question = Message(Head("work", "run", "digest", "site", deadline=20.0), {"hello": 1})
    deep = tmp_path / ("a 'place' with 100 % of a \"name\" too long for sockets " * 2)
    deep.mkdir()
    worker = Worker(deep / "w.sock", lambda content: Message.unpack(content).answer({"hello": 2}).pack())
    threading.Thread(target=worker.serve, daemon=True).start()
    node.fetch(question.pack(), deep / "w.sock")
    messenger = Messenger(f"127.0.0.1:{node.port}", SECRET)
    threading.Thread(target=messenger.serve, daemon=True).start()
    reply = node.answer()
    assert not reply.has_error()
    assert any(question.answer({"hello": 2}).pack() in part for part in node.parts(reply))


def _tree(tree):
    return [tree, *(each for child in tree.children for each in _tree(child))]


def test_whoever_does_not_know_the_secret_gets_no_message(node):
    with pytest.raises(SystemExit, match="The SuperNode refuses"):
        Messenger(f"127.0.0.1:{node.port}", b"a guess").serve()


def test_a_message_whose_parts_do_not_come_holds_nobody_up(node, tmp_path):
    """As of a server that was killed while it sent one."""
    worker = Worker(tmp_path / "w.sock", lambda content: Message.unpack(content).answer().pack())
    threading.Thread(target=worker.serve, daemon=True).start()
    question = Message(Head("work", "run", "digest", "site", deadline=20.0))
    node.fetch(question.pack(), tmp_path / "w.sock", run=1, whole=False)
    node.fetch(question.pack(), tmp_path / "w.sock", run=2)
    threading.Thread(target=Messenger(f"127.0.0.1:{node.port}", SECRET).serve, daemon=True).start()
    assert node.answer().metadata.run_id == 2


def test_a_message_that_comes_after_its_task_is_answered(node, tmp_path):
    """As from a SuperNode on a busy machine: the task first, the message a while later, its parts last of all."""
    worker = Worker(tmp_path / "w.sock", lambda content: Message.unpack(content).answer().pack())
    threading.Thread(target=worker.serve, daemon=True).start()
    store_message, later = node.state.store_message, []
    node.state.store_message = lambda message: later.append(message)
    question = Message(Head("work", "run", "digest", "site", deadline=20.0))
    node.fetch(question.pack(), tmp_path / "w.sock", whole=False)
    node.state.store_message = store_message
    threading.Thread(target=Messenger(f"127.0.0.1:{node.port}", SECRET).serve, daemon=True).start()
    time.sleep(0.5)
    node.state.store_message(*later)
    time.sleep(0.5)
    for name, part in get_all_nested_objects(later[0]).items():
        node.store.store().put(name, part.deflate())
    assert not node.answer().has_error()


def test_a_message_that_is_lost_is_not_declared_done(node, tmp_path, capfd):
    """Who waits for its answer would do so for good; so it is left to whoever misses the heartbeat."""
    question = Message(Head("work", "run", "digest", "site", deadline=20.0))
    node.fetch(question.pack(), tmp_path / "w.sock", whole=False)
    (message,) = (entry.message for entry in node.state.msg_store.values())
    threading.Thread(target=Messenger(f"127.0.0.1:{node.port}", SECRET).serve, daemon=True).start()
    time.sleep(0.5)
    node.store.store().delete(message.metadata.message_id)
    said = ""
    for _ in range(100):
        said += capfd.readouterr().err
        if "A message was lost" in said:
            break
        time.sleep(0.05)
    assert "A message was lost" in said
    (task,) = node.state.get_tasks()
    assert task.status.status == "running"


def test_a_worker_that_is_not_there_is_an_answer_too(node, tmp_path):
    question = Message(Head("work", "run", "digest", "site", deadline=0.5))
    node.fetch(question.pack(), tmp_path / "nobody.sock")
    threading.Thread(target=Messenger(f"127.0.0.1:{node.port}", SECRET).serve, daemon=True).start()
    assert not node.answer().has_error()
