import jax.numpy as jnp
import numpy as np
import pytest

from headstart.data import sources
from headstart.data.sources.shakespeare import CHARACTERS
from headstart.errors import UsageError
from headstart.problems import Examples
from tests.data.sources import files

ROLES = [
    ("Hamlet", "HAMLET", "To be, or not\tto be"),
    ("Hamlet", "GHOST", "Mark me."),
    ("Lear", "FOOL", "Prithee, nuncle\u2014"),
]
READ = {"Hamlet/HAMLET": "To be, or not to be", "Hamlet/GHOST": "Mark me.", "Lear/FOOL": "Prithee, nuncle "}


@pytest.mark.parametrize("form", ["npz", "json"])
@pytest.mark.parametrize("context", [1, 5, 7])
def test_every_character_of_a_role_follows_those_before_it(tmp_path, form, context):
    content = files.as_json(ROLES)
    files.write(
        tmp_path, {f"shakespeare.{form}": files.npz(json=np.array(content)) if form == "npz" else content.encode()}
    )
    samples = sources.shakespeare(context, folder=tmp_path)
    wanted = [(text[i : i + context], text[i + context]) for text in READ.values() for i in range(len(text) - context)]
    read = [("".join(CHARACTERS[c] for c in x), CHARACTERS[y]) for x, y in zip(samples.x, samples.y, strict=True)]
    assert read == wanted
    roles = [role for role, text in READ.items() for _ in range(len(text) - context)]
    assert samples.column("role").tolist() == roles
    assert samples.column("play").tolist() == [role.split("/")[0] for role in roles]
    assert samples.x.dtype == np.uint8
    assert samples.classes == tuple(CHARACTERS)
    batch = samples.to_examples(Examples(jnp.asarray(samples.x), jnp.asarray(samples.y)))
    assert batch.x.shape == (len(samples), context, 80)
    np.testing.assert_array_equal(np.argmax(batch.x, -1), samples.x)
    np.testing.assert_array_equal(np.sum(batch.x, -1), 1)
    assert samples.task.inputs == (context, 80)


def test_roles_that_say_too_little_are_left_out(tmp_path):
    files.write(tmp_path, {"shakespeare.json": files.as_json(ROLES).encode()})
    assert set(sources.shakespeare(5, min_samples=4, folder=tmp_path).column("role")) == {"Hamlet/HAMLET", "Lear/FOOL"}
    assert set(sources.shakespeare(7, folder=tmp_path).column("role")) == set(READ)
    assert "Hamlet/GHOST" not in sources.shakespeare(8, folder=tmp_path).column("role")
    with pytest.raises(UsageError, match="No role of shakespeare has 1 windows of 50"):
        sources.shakespeare(50, folder=tmp_path)
    with pytest.raises(UsageError, match="context = 0"):
        sources.shakespeare(0, folder=tmp_path)


def test_of_long_roles_so_many_windows_are_taken_evenly_spaced(tmp_path):
    files.write(tmp_path, {"shakespeare.json": files.as_json(ROLES).encode()})
    every, some = (sources.shakespeare(5, folder=tmp_path, max_samples=most) for most in (None, 4))
    for role, text in READ.items():
        count = len(text) - 5
        windows = every.x[every.column("role") == role]
        wanted = windows if count <= 4 else windows[np.arange(4) * count // 4]
        np.testing.assert_array_equal(some.x[some.column("role") == role], wanted)
    with pytest.raises(UsageError, match="max_samples = 3"):
        sources.shakespeare(5, min_samples=4, folder=tmp_path, max_samples=3)


WORKS = """
THE SONNETS

by William Shakespeare

                     1
  From fairest creatures we desire increase. Yes,
  That thereby beauty's rose might never die.
    Pity the world, or else this glutton be,

THE END

<<THIS ELECTRONIC VERSION OF THE COMPLETE WORKS OF WILLIAM
SHAKESPEARE IS COPYRIGHT>>

1592

KING RICHARD III

by William Shakespeare

Dramatis Personae

    EDWARD THE FOURTH

SCENE: England

ACT II. SCENE 1.

London. The palace

Enter KING EDWARD sick

  KING EDWARD. Why, so. Now have I done a good day's
    work.
    You peers, continue this united league.
  HASTINGS. And so swear I.                       [They embrace]
  BUCKINGHAM.  [To the QUEEN]  Whenever Buckingham
    doth turn [To
    Silvius] his hate
                                                  [They embrace]
  EDWARD, my lord, thy son, our king, is dead.
  King Edward. A pleasing cordial, princely Buckingham,  \n
                      Enter GLOUCESTER

    Is this thy vow unto my sickly heart.                 Exeunt

SCENE 2.

    Nobody says this.

<<THIS ELECTRONIC VERSION OF THE COMPLETE WORKS OF WILLIAM
SHAKESPEARE IS COPYRIGHT>>

  HASTINGS. Enough.
  1. Clown. What?

THE END


1593

THE COMEDY OF ERRORS

by William Shakespeare


SOLINUS, Duke of Ephesus

ACT I. SCENE 1

A hall in the DUKE'S palace

Enter the DUKE OF EPHESUS, AEGEON, the Merchant
of Syracuse

AEGEON. Proceed, Solinus, to procure my fall,
  And by the doom of death end woes and all.
DUKE. Merchant of Syracuse, plead no more;
  I am not partial to infringe our laws.
<Exit

SCENE 2

The mart

DROMIO OF EPHESUS. Well.
[Beats him]

THE END

End of this Etext of The Complete Works of William Shakespeare
NOBODY. This is no play.
"""
SPOKEN = {
    "KING RICHARD III/KING EDWARD": """Why, so. Now have I done a good day's
work.
You peers, continue this united league.
A pleasing cordial, princely Buckingham,
Is this thy vow unto my sickly heart.""",
    "KING RICHARD III/HASTINGS": "And so swear I.\nEnough.",
    "KING RICHARD III/BUCKINGHAM": "Whenever Buckingham\ndoth turn his hate",
    "KING RICHARD III/1. CLOWN": "What?",
    "THE COMEDY OF ERRORS/AEGEON": "Proceed, Solinus, to procure my fall,\nAnd by the doom of death end woes and all.",
    "THE COMEDY OF ERRORS/DUKE": "Merchant of Syracuse, plead no more;\nI am not partial to infringe our laws.",
    "THE COMEDY OF ERRORS/DROMIO OF EPHESUS": "Well.",
}


@pytest.mark.parametrize("name", ["1994-01-100.zip", "100.txt", "t8.shakespeare.txt", "raw_data/raw_data.txt"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_complete_works_are_taken_apart(tmp_path, name, newline):
    text = WORKS.replace("\n", newline).encode()
    files.write(tmp_path, {name: files.zipped({"100.txt": text}) if name.endswith("zip") else text})
    samples = sources.shakespeare(1, folder=tmp_path)
    roles = samples.column("role")
    read = {
        role: "".join(CHARACTERS[c] for c in [samples.x[roles == role][0, 0], *samples.y[roles == role]])
        for role in dict.fromkeys(roles)
    }
    assert read == SPOKEN


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("100.txt", b"HAMLET\nTo be, or not to be", "no plays in the layout of Project Gutenberg's edition of 1994"),
        ("100.txt", b"", "no plays in the layout"),
        ("1994-01-100.zip", files.zipped({"200.txt": b""}), "it lacks 100.txt"),
        ("shakespeare.json", b"[", "shakespeare.json cannot be read"),
        ("shakespeare.json", b"[]", "has to be a list of"),
        ("shakespeare.json", b'[{"play": "Lear"}]', "cannot be read: 'role'"),
        ("shakespeare.json", b'[{"play": "Lear", "role": 3, "text": ""}]', "has to be a list of"),
        ("shakespeare.npz", files.npz(text=np.zeros(1)), "lacks json; it has text"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, data, message):
    files.write(tmp_path, {name: data})
    with pytest.raises(UsageError, match=message):
        sources.shakespeare(folder=tmp_path)
