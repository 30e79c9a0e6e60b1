"""Signals while numba compiles: held back amid a pass, never lost."""

import os
import signal
import threading

import numba
import pytest

from momentalign.training.kernels import heard_between_passes


def add_one():
    """A function that has not been compiled."""
    return numba.njit(lambda number: number + 1)


@pytest.fixture(autouse=True)
def terminated():
    """A handler of SIGTERM that raises, as that of the command line does."""

    def interrupt(number, _frame):
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    yield interrupt
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_before_the_next_pass(number, terminated):
    function, reached = add_one(), []

    def compile_it():
        with heard_between_passes():
            os.kill(os.getpid(), number)
            reached.append("the compiler")
            function(1)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        compile_it()
    assert reached == ["the compiler"]
    assert function.signatures == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is terminated
    assert function(1) == 2


def test_a_signal_after_the_last_pass_is_heard_at_the_end():
    reached = []

    def compile_nothing():
        with heard_between_passes():
            os.kill(os.getpid(), signal.SIGTERM)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        compile_nothing()
    assert reached == ["the end"]


def test_an_error_is_raised_as_it_is_and_handlers_are_back(terminated):
    with pytest.raises(ZeroDivisionError), heard_between_passes():
        _ = 1 / 0
    assert signal.getsignal(signal.SIGTERM) is terminated


def test_a_handler_that_only_takes_note_does_not_stop_the_compiler():
    noted = []
    signal.signal(signal.SIGTERM, lambda number, _frame: noted.append(number))
    function = add_one()
    with heard_between_passes():
        os.kill(os.getpid(), signal.SIGTERM)
        assert function(1) == 2
        assert noted == [signal.SIGTERM]


@pytest.mark.parametrize("ignored", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_has_no_handler_is_left_alone(ignored):
    signal.signal(signal.SIGTERM, ignored)
    with heard_between_passes():
        assert signal.getsignal(signal.SIGTERM) is ignored


def test_other_threads_compile_without_touching_signals(terminated):
    found = []

    def work():
        with heard_between_passes():
            found.append((add_one()(1), signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(2, terminated)]
