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
        ("reproduce",),
        ("reproduce", "artificial", "--help"),
        ("reproduce", "sentiment", "--help"),
        ("reproduce", "sensitivity", "--help"),
        ("reproduce", "objects", "--help"),
        ("reproduce", "digits", "--help"),
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fly",), "No such command 'fly'"),
        (("demo", "--speed", "3"), "No such option"),
        (("demo", "--seeds", "0"), "--seeds"),
        (("demo", "--seeds", "many"), "--seeds"),
        (("reproduce", "artificial"), "--data DIR or in MOMENTALIGN_DATA"),
        (("reproduce", "artificial", "--data", "nowhere"), "nowhere/artificial.npz is not there"),
        (("reproduce", "artificial", "--data", ".", "--setting", "best"), "paper, momentalign"),
        (("reproduce", "overpenalization", "--out", "nowhere/page.html"), "nowhere/page.json cannot be written"),
        (("reproduce", "sentiment"), "--data DIR or in MOMENTALIGN_DATA"),
        (("reproduce", "sensitivity", "--data", "nowhere"), "nowhere/amazon_reviews.npz is not there"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "MOMENTALIGN_DATA"}
    answer = subprocess.run([*COMMAND, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("momentalign: ")
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not list(tmp_path.iterdir())


def test_damaged_benchmark_file_is_named(tmp_path):
    (tmp_path / "artificial.npz").write_bytes(b"not an archive")
    answer = run("reproduce", "artificial", "--data", str(tmp_path))
    assert answer.returncode == 2
    assert "is not the file it should be" in answer.stderr


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


def test_overpenalization_prints_every_metric(tmp_path):
    answer = run("reproduce", "overpenalization", "--out", "figure.html", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    closer = [line.split()[-1] for line in answer.stdout.splitlines()[:-1]]
    assert closer == ["left"] * 7 + ["right"]
    assert {path.name for path in tmp_path.iterdir()} == {"figure.html", "figure.json", "figure_2.svg"}


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


SENTIMENT = ["reproduce", "sentiment", "--methods", "nn", "--seeds", "1", "--jobs", "1", "--no-open"]


@pytest.mark.data
def test_a_killed_run_goes_on_where_it_was(tmp_path):
    """Killed once, the journal, the results and the page are those of a run that was left alone."""
    for name in ("killed", "alone"):
        (tmp_path / name).mkdir()
    journal = tmp_path / "killed" / "momentalign-sentiment.jsonl"
    process = subprocess.Popen([*COMMAND, *SENTIMENT], cwd=tmp_path / "killed", stdout=subprocess.DEVNULL)
    while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < 4):
        time.sleep(0.005)
    process.kill()
    process.wait()
    held = journal.read_bytes()
    assert 3 <= held.count(b"\n") < 13
    for name in ("killed", "alone"):
        answer = run(*SENTIMENT, cwd=tmp_path / name)
        assert answer.returncode == 0, answer.stderr
        assert "| Average |" in answer.stdout
    assert journal.read_bytes().startswith(held[: held.rfind(b"\n") + 1])
    names = {path.name for path in (tmp_path / "alone").iterdir()}
    assert names == {
        "momentalign-sentiment.html", "momentalign-sentiment.json", "momentalign-sentiment.jsonl", "table_2.md",
        "table_2.tex",
    }  # fmt: skip
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name


@pytest.mark.data
def test_what_cannot_be_run_is_named(tmp_path):
    answer = run("reproduce", "sentiment", "--methods", "nn,magic", "--no-open", cwd=tmp_path)
    assert answer.returncode == 2
    assert "method 'magic' is not known" in answer.stderr
    answer = run("reproduce", "sensitivity", "--panels", "left", "--no-open", cwd=tmp_path)
    assert answer.returncode == 2
    assert "panel 'left' is not known" in answer.stderr
    answer = run("reproduce", "sentiment", "--device", "abacus", "--no-open", cwd=tmp_path)
    assert answer.returncode == 2
    assert "device 'abacus' cannot be used" in answer.stderr
    assert not list(tmp_path.iterdir())


def test_a_library_that_is_not_installed_is_named_in_one_line(tmp_path):
    program = (
        "import sys; sys.modules['pytorch_lightning'] = None; from momentalign.cli import main; "
        "sys.argv = ['momentalign', 'reproduce', 'digits']; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "momentalign: Networks are adapted by Lightning: pip install momentalign[deep]\n"


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
