"""What the documents show and no test can run is at least right: commands parse, names are there, files are read."""

import ast
import re
import shlex
import tomllib

import click
import pytest
import typer

import headstart as hs
from headstart.cli.main import app
from headstart.experiment import Settings
from headstart.experiment.settings import SECTIONS
from tests.docs.fences import DOCUMENTS, ROOT, Block, blocks


def found(language: str) -> list[tuple[str, Block]]:
    return [
        (f"{document.relative_to(ROOT)}:{block.line}", block)
        for document in DOCUMENTS
        for block in blocks(document)
        if block.language == language
    ]


def commands() -> list[tuple[str, list[str]]]:
    """Every `headstart` line of the shell blocks, without its comment."""
    lines = []
    for where, block in found("sh"):
        for line in block.code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"\w+=\S*", words[0]):
                words = words[1:]  # a variable of the environment
            if words and words[0] == "headstart":
                lines.append((where, [word for word in words[1:] if word != "&"]))
    return lines


def test_commands_of_the_documents_parse():
    group = typer.main.get_command(app)
    seen = commands()
    assert len(seen) > 60
    for where, words in seen:
        command, arguments = group, words
        while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
            inner = command.get_command(click.Context(command), arguments[0])
            assert inner is not None, f"{where}: headstart {' '.join(words)}: there is no command {arguments[0]}"
            command, arguments = inner, arguments[1:]
        if isinstance(command, click.Group):
            continue  # an option of the whole, such as --install-completion
        try:
            command.make_context("headstart", list(arguments))
        except click.exceptions.Exit:
            pass  # --help
        except click.ClickException as error:
            pytest.fail(f"{where}: headstart {' '.join(words)}: {error.format_message()}")


def test_names_in_blocks_that_are_not_run_are_there():
    for where, block in found("python"):
        if "no-run" not in block.words:
            continue
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.Attribute):
                names = _chain(node)
                if names and names[0] == "hs":
                    assert _there(names[1:]), f"{where}: {'.'.join(names)} is not there"
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headstart"):
                exec(compile(ast.Module([node], []), where, "exec"), {})


def _chain(node: ast.expr) -> list[str]:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def _there(names: list[str]) -> bool:
    thing: object = hs
    for name in names:
        if not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return True


def test_experiments_of_the_documents_are_accepted():
    whole = 0
    for where, block in found("toml"):
        tables = tomllib.loads(block.code)
        if {"data", "model", "algorithm"} <= set(tables) <= set(SECTIONS):  # records of papers have others
            whole += 1
            Settings.from_tables(tables)
        assert tables, where
    assert whole >= 2
    for path in sorted((ROOT / "docs" / "comparisons").glob("*.toml")):
        Settings.from_tables(tomllib.loads(path.read_text(encoding="utf-8")))
