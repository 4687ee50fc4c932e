"""The package and the command start at once: JAX is imported by what computes, and by nothing else."""

import os
import subprocess
import sys

import pytest

import headstart as hs

HELP = """
import sys
from headstart.cli import main
sys.argv = ['headstart', {}]
try: main()
except SystemExit: pass
"""
HEAVY = "print('HEAVY', sorted({'jax', 'numpy', 'pyarrow', 'equinox', 'optax', 'scipy'} & set(sys.modules)))"


def _run(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


@pytest.mark.parametrize(
    "script",
    [
        "import sys, headstart\n",
        HELP.format("'--help'"),
        HELP.format("'run', '--help'"),
        HELP.format("'data', '--help'"),
        HELP.format("'--version'"),
    ],
)
def test_nothing_heavy_is_imported(script):
    done = _run(script + HEAVY)
    assert "HEAVY []" in done.stdout, done.stdout + done.stderr


OPTIONAL = """
import importlib.abc, sys
class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {}: raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refused())
"""


@pytest.mark.parametrize("module", ["headstart.report", "headstart.cli.main", "headstart.bench"])
def test_what_extras_install_is_not_imported_by_what_needs_it_not(module):
    extra = ("flwr", "cryptography", "httpx", "psutil", "starlette", "tomli_w", "uvicorn", "altair", "jinja2", "torch",
             "flax", "optuna", "mlflow", "tensorboardX", "onnxruntime", "jax2onnx", "dp_accounting", "ot")  # fmt: skip
    done = _run(OPTIONAL.format(extra) + f"import {module}")
    assert done.returncode == 0, done.stderr


def test_completion_offers_the_commands_and_imports_nothing_heavy():
    words = {"COMP_WORDS": "headstart ", "COMP_CWORD": "1", "_HEADSTART_COMPLETE": "complete_bash"}
    done = _run(HELP.format("") + HEAVY, **words)
    offered = done.stdout.split()
    assert {"run", "plan", "data", "algorithms"} <= set(offered), done.stdout + done.stderr
    assert "HEAVY []" in done.stdout


def test_help_costs_little_more_than_typer_itself():
    """Machines differ threefold in what a third of a second is; what Typer's pages cost on this one is the measure."""

    def processor_seconds(script):
        before = os.times()
        _run(script)
        after = os.times()
        return (after.children_user + after.children_system) - (before.children_user + before.children_system)

    def least(script):
        return min(processor_seconds(script) for _ in range(5))

    bare, typer_pages = least("pass"), least("import typer.rich_utils")
    assert least("import headstart") < bare + 0.5 * typer_pages
    assert least(HELP.format("'--help'")) < bare + 2 * typer_pages


def test_every_name_is_where_the_stub_says():
    assert len(hs.__all__) > 50
    for name in hs.__all__:
        assert getattr(hs, name) is not None
    assert set(hs.__all__) <= set(dir(hs))
    with pytest.raises(AttributeError, match="no_such_name"):
        hs.no_such_name  # noqa: B018


DEPLOY = ("init", "up", "server", "site", "status", "add", "revoke", "adapt")
COMMANDS = [("run",), ("plan",), ("algorithms",), ("data", "list"), ("data", "show"), ("data", "partition"),
            ("data", "prepare"), *(("deploy", name) for name in DEPLOY)]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_its_call_in_python(command):
    from typer.testing import CliRunner

    from headstart.cli.main import app

    out = CliRunner().invoke(app, [*command, "--help"]).output
    assert "From Python: hs." in " ".join(out.split()) or "From Python: plans = hs." in " ".join(out.split()), out
