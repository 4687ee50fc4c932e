"""From tables to constructor calls: parts that are registered, and mistakes that are named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
import pytest

import headstart as hs
from headstart.config import choices, described, plan, register, with_fields_of


class Spice:
    """A part of a dish."""


@dataclass(frozen=True)
class Pepper(Spice):
    grams: float = 1.0


def _mixed(*, parts: int, fine: bool = True) -> Spice:
    return Pepper(parts / 10)


register(Spice, {"pepper": Pepper, "mixed": _mixed})


def dish(
    portions: int = 2,
    salt: float | int = 0.5,
    heat: Literal["low", "high"] | int = "low",
    spice: Spice | None = None,
    spices: tuple[Spice, ...] = (),
    names: Sequence[str] | None = None,
    extra: Mapping[str, int] | None = None,
) -> dict:
    return locals()


def test_values_become_what_the_annotations_say():
    made = plan(
        dish,
        {
            "salt": 1, "heat": 7, "spice": {"name": "pepper", "grams": 2}, "names": ["a", "b"], "extra": {"x": 1},
            "spices": ["pepper", {"name": "mixed", "parts": 5}],
        },
        "dish",
    ).build()  # fmt: skip
    assert made["portions"] == 2
    assert made["salt"] == 1
    assert isinstance(made["salt"], int), "where whole numbers are something else than fractions"
    assert made["heat"] == 7
    assert made["spice"] == Pepper(2.0)
    assert made["spices"] == (Pepper(1.0), Pepper(0.5)), "a part may be made by a function"
    assert made["names"] == ("a", "b")
    assert made["extra"] == {"x": 1}
    assert isinstance(plan(Pepper, {"grams": 3}, "pepper").build().grams, float)


@pytest.mark.parametrize(
    ("table", "problem", "remedy"),
    [
        ({"portion": 1}, "dish.portion is not a setting", "'portions'"),
        ({"portions": 1.5}, "dish.portions = 1.5 has the wrong type", "a whole number"),
        ({"portions": True}, "wrong type", "a whole number"),
        ({"heat": "hihg"}, "dish.heat = 'hihg' is not known", "'high'"),
        ({"heat": []}, "wrong type", "'low' or 'high' or a whole number"),
        ({"spice": "peper"}, "dish.spice = 'peper' is not known", "'pepper'"),
        ({"spice": {"name": []}}, "dish.spice = [] is not known", "mixed, pepper"),
        ({"spice": {"name": "mixed"}}, "dish.spice.parts is missing", "--set dish.spice.parts"),
        ({"spice": {"name": "pepper", "gram": 1}}, "dish.spice.gram is not a setting", "'grams'"),
        ({"spice": 3}, "wrong type", "one of pepper, mixed (or a table with that name)"),
        ({"spices": "pepper"}, "wrong type", "a list, each one of pepper"),
        ({"names": [1]}, "dish.names = 1 has the wrong type", "a string"),
    ],
)
def test_mistakes(table, problem, remedy):
    with pytest.raises(hs.UsageError) as error:
        plan(dish, table, "dish")
    assert problem in error.value.problem
    assert remedy in error.value.remedy


def test_choices_are_the_names_of_parts():
    assert choices(dish, "spice") == ("pepper", "mixed")
    assert choices(dish, "portions") == ()


def test_options_of_a_dataclass_are_settings_of_a_call():
    @with_fields_of(Pepper)
    def grind(into: str, **options) -> tuple:
        return into, options

    planned = plan(grind, {"into": "bowl"}, "grind")
    assert planned.resolved == {"into": "bowl", "grams": 1.0}
    assert plan(grind, {"into": "bowl", "grams": 2}, "grind").build() == ("bowl", {"grams": 2.0})
    with pytest.raises(hs.UsageError, match=r"grind\.gram is not a setting"):
        plan(grind, {"into": "bowl", "gram": 2}, "grind")


def test_objects_are_described_alike_in_every_process():
    problem = hs.CustomProblem(init_fn=lambda key: jnp.zeros(2), loss_fn=dish)
    said = described(problem)
    assert said["python"] == "headstart.problems.problem.CustomProblem"
    assert said["loss_fn"] == "tests.test_config.dish"
    assert "0x" not in str(said)
    assert described(hs.per_fedavg(inner_lr=jnp.float32(0.5)))["inner_lr"] == 0.5
    assert described(hs.per_fedavg(outer_lr=hs.StepDecay(0.1, (5,))))["outer_lr"] == {
        "name": "step-decay", "initial": 0.1, "milestones": [5],
    }  # fmt: skip
