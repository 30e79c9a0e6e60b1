import inspect

import pytest

from momentalign import errors

TREE = {
    "MomentAlignError": (Exception,),
    "InvalidInputError": (errors.MomentAlignError, ValueError),
    "InvalidTypeError": (errors.InvalidInputError, TypeError),
    "DataNotFoundError": (errors.MomentAlignError, FileNotFoundError),
    "DamagedFileError": (errors.MomentAlignError, ValueError),
    "MissingExtraError": (errors.MomentAlignError, ModuleNotFoundError),
    "DivergedError": (errors.MomentAlignError, ArithmeticError),
    "MomentAlignWarning": (UserWarning,),
}


@pytest.mark.parametrize(("name", "bases"), TREE.items())
def test_the_tree_is_as_drawn(name, bases):
    assert getattr(errors, name).__bases__ == bases
    assert name in errors.__doc__


def test_every_error_is_public_and_in_the_tree():
    defined = {name for name, _ in inspect.getmembers(errors, inspect.isclass)}
    assert defined == set(errors.__all__) - {"printable"} == set(TREE)


@pytest.mark.parametrize("name", [name for name in TREE if name != "MomentAlignWarning"])
def test_the_message_is_what_was_written(name):
    error = getattr(errors, name)("what, where, what to do")
    assert str(error) == "what, where, what to do"
    assert str(getattr(errors, name)()) == ""


def test_a_missing_file_with_two_arguments_still_shows_the_first():
    assert str(errors.DataNotFoundError("amazon.mat is not in /data", "extra")) == "amazon.mat is not in /data"


@pytest.mark.parametrize("name", TREE)
def test_a_message_is_one_line_that_no_terminal_obeys(name):
    hostile = "a\x1b]0;title\x07\nb\udc80" + "x" * 10_000
    shown = str(getattr(errors, name)(hostile))
    assert shown.startswith("a\\x1b]0;title\\x07 b\\udc80xxx")
    assert shown.isprintable()
    assert len(shown) < 2000


def test_spaces_that_do_not_break_a_line_stay():
    assert errors.printable("72\N{NO-BREAK SPACE}% of \N{IDEOGRAPHIC SPACE}") == "72\xa0% of \u3000"
