"""Messages come back as they were sent, and anything else is refused; the messenger is quick and never hangs."""

import contextlib
import subprocess
import sys
import threading
import time
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.deploy.client_app import ask_worker
from headstart.deploy.messages import Garbled, Head, Message, difference
from headstart.deploy.settings import DeploySettings
from headstart.deploy.worker import Worker
from headstart.errors import UsageError

HEAD = Head("work", "run1", "digest", "north", "method", 3, 7, "work", 5.0)
ARRAYS = {
    "": np.float32(3.5),
    "down['a'][0]": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    "half": np.asarray(jnp.asarray([1.5, -2.0], jnp.bfloat16)),
    "scalar": np.asarray(jnp.asarray(0.1, jnp.bfloat16)),
    "none": np.zeros((0, 4), np.uint8),
    "truth": np.array([True, False]),
}


def test_a_message_comes_back_as_it_was_sent():
    message = Message(HEAD, {"members": [1, 2], "start": None}, ARRAYS)
    back = Message.unpack(message.pack())
    assert back.head == HEAD
    assert back.said == message.said
    for name, array in ARRAYS.items():
        assert back.arrays[name].dtype == array.dtype
        assert back.arrays[name].shape == array.shape
        assert back.arrays[name].tobytes() == np.asarray(array).tobytes()


def test_bytes_are_those_of_the_arrays():
    array = np.zeros(70_000, np.float32)
    assert len(Message(HEAD, {}, {"down['layers'][0]": array}).pack()) < 1.02 * array.nbytes


@given(st.binary(max_size=200), st.integers(0, 400))
def test_anything_else_is_refused(content, place):
    """Also a message with some bytes changed or left out: it is refused or says something else, and nothing breaks."""
    whole = Message(HEAD, {"a": 1}, {"x": np.arange(3.0)}).pack()
    for changed in (content, whole[:place], whole[:place] + content + whole[place + len(content) :]):
        with contextlib.suppress(Garbled):
            Message.unpack(changed)


def test_limits_and_versions():
    whole = Message(HEAD, {}, {"x": np.arange(3.0)}).pack()
    with pytest.raises(Garbled, match="more than 10"):
        Message.unpack(whole, largest=10)
    with pytest.raises(Garbled, match="version 513"):
        Message.unpack(whole[:4] + b"\x02\x01" + whole[6:])


def test_differences_of_heads_are_named():
    assert difference(HEAD, HEAD) is None
    assert difference(replace(HEAD, kind="fault"), HEAD) is None
    for name, other in {"run": "run2", "round": 2, "attempt": 1, "phase": "refresh", "site": "south"}.items():
        assert name in difference(replace(HEAD, **{name: other}), HEAD)


def test_the_messenger_does_not_import_jax():
    code = "import sys, headstart.deploy.client_app; sys.exit('jax' in sys.modules or 'equinox' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_messenger_gives_up_at_its_deadline(tmp_path):
    """On a worker that hangs, and on one that is not there; afterwards the worker answers the next message."""
    path, hanging = tmp_path / "worker.sock", threading.Event()

    def answer(content):
        question = Message.unpack(content)
        if question.said.get("hang"):
            hanging.wait(20)
        return question.answer({"done": True}).pack()

    def asked(said, deadline):
        return Message.unpack(ask_worker(Message(replace(HEAD, deadline=deadline), said).pack(), str(path)))

    assert asked({}, 0.5).said["reason"] == "unreachable"
    threading.Thread(target=Worker(path, answer).serve, daemon=True).start()
    assert path.stat().st_mode & 0o777 == 0o600
    assert asked({}, 5.0).said == {"done": True}
    began = time.monotonic()
    assert asked({"hang": True}, 0.5).said["reason"] == "slow"
    assert asked({}, 0.5).said["reason"] == "slow"
    assert time.monotonic() - began < 10
    hanging.set()
    assert asked({}, 10.0).said == {"done": True}


def test_settings_say_what_is_wrong(tmp_path):
    (tmp_path / "deploy.toml").write_text(
        "quorum = 3\nround_timeout = 10.0\nsite_deadline = 8.0\n[gateway]\nport = 1\n"
    )
    assert DeploySettings.read(tmp_path).needed(5) == 3
    with pytest.raises(UsageError, match="site_deadline"):
        DeploySettings(site_deadline=300.0)
    with pytest.raises(UsageError, match=r"deploy\.quorun"):
        DeploySettings.from_table({"quorun": 1})
