"""The command line as a user meets it: real processes, exit codes, one line per error, pages on disk."""

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from importlib.metadata import version

import pytest

COMMAND = [sys.executable, "-m", "momentalign"]


def run(*arguments, cwd=None, environment=()):
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, env={**os.environ, **dict(environment)}, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        (),
        ("demo", "--help"),
        ("diagnose", "--help"),
        ("fit", "--help"),
        ("predict", "--help"),
    ],
)
def test_help_says_how(arguments):
    answer = run(*arguments)
    assert answer.returncode == 0
    assert "Usage:" in answer.stdout
    if len(arguments) > 1:
        words = " ".join(answer.stdout.split())
        assert words.count("momentalign " + " ".join(arguments[:-1])) >= 3  # usage and two examples


def test_help_is_instant():
    """By the time of the processor, which other processes do not lengthen."""

    def seconds(command):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare, asked = ([sys.executable, "-c", "pass"], [*COMMAND, "--help"])
    times = {name: [seconds(command) for _ in range(5)] for name, command in (("bare", bare), ("help", asked))}
    assert statistics.median(times["help"]) - statistics.median(times["bare"]) < 0.3


def test_version_names_torch_and_device():
    answer = run("--version")
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"momentalign {version('momentalign')}, torch 2.")
    assert "device" in answer.stdout


def test_what_the_user_can_mend_is_one_line_and_exit_code_2(tmp_path):
    """All of it is in promises/test_bad_commands, in the process of the tests."""
    answer = run("demo", "--speed", "3", cwd=tmp_path)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert answer.stderr.startswith("momentalign: No such option")
    assert not list(tmp_path.iterdir())


def test_demo_writes_one_page_and_its_results(tmp_path):
    answer = run("demo", "--seeds", "1", "--no-open", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    page, results = tmp_path / "momentalign-demo.html", tmp_path / "momentalign-demo.json"
    assert sorted(tmp_path.iterdir()) == [page, results]
    lines = answer.stdout.splitlines()
    assert lines[-1] == f"page: {page}"
    assert "plain network" in lines[0]
    assert "moment-aligned network" in lines[0]
    assert lines[1].startswith("Aligning moments moved the boundary")
    result = json.loads(results.read_text())
    assert result["median"]["nn_accuracy"] < 0.92
    assert result["median"]["mann_accuracy"] > result["median"]["nn_accuracy"]
    content = page.read_text()
    assert f"{100 * result['median']['mann_accuracy']:.1f}" in content
    assert 100_000 < len(content) < 2_000_000


def test_interrupt_leaves_nothing_and_exits_130(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "demo", "--seeds", "50", "--no-open"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    time.sleep(6)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("fault", "code"), [("raise KeyboardInterrupt", 130), ("os.kill(os.getpid(), 15)", 143)])
def test_an_error_of_clearing_up_after_an_interruption_is_an_interruption(fault, code):
    """As of a pool of processes that is stopped while it starts."""
    script = f"""
import os, sys
from momentalign.cli.main import app, main

@app.command()
def work():
    try:
        {fault}
    except KeyboardInterrupt:
        raise RuntimeError("cannot join thread before it is started")

sys.argv = ["momentalign", "work"]
main()
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (code, "momentalign: interrupted\n")
