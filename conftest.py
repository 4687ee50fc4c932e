"""Modules that need more than the tests' environment has are not searched for examples."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["headstart/bench/plain.py", "headstart/bench/suites/_sine_torch.py"]
