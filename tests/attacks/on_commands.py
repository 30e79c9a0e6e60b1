"""Attempts on the command line, in this process and in many environments."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import momentalign as ma
from momentalign.cli.main import main

Attempt = Callable[[Path], Any]
GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"


# Commands, in this process; and one command in many environments, each a process of its own.


def tables_in(folder: Path) -> tuple[str, str]:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        frame = pd.DataFrame(rng.normal(size=(30, 2)).round(3), columns=["x", "z"]).assign(label=["u", "v"] * 15)
        frame.to_csv(folder / f"{name}.csv", index=False)
    return str(folder / "a.csv"), str(folder / "b.csv")


COMMANDS = """
--nothing
diagnose
diagnose {a}
diagnose {a} {no}
diagnose {no} {a}
diagnose {a} {b} --out {a}
diagnose {a} {b} --out {dir}
diagnose {a} {b} --out {dir}/below/page.html
diagnose {a} {b} --out {dir}/x.json
diagnose {a} {b} --label nothing
diagnose {dir} {dir}
diagnose {a} {empty}
diagnose {empty} {empty}
diagnose {a} {b} --id x --id z --label label
fit
fit {a} {b}
fit {a} {b} --label nothing --out {dir}/m
fit {a} {no} --label label --out {dir}/m
fit {a} {b} --label label --out {a}
fit {a} {b} --label label --seeds 0
fit {a} {b} --label label --seeds many
fit {a} {empty} --label label --out {dir}/m
fit {a} {b} --label label --out {a}/m
predict
predict {a} {b}
predict {dir} {b}
predict {no} {b}
predict {dir} {no} --out {dir}/p.csv
predict {dir} {b} --json
reproduce nothing
datasets nothing
demo --seeds -1
diagnose {a} {a} --out {dir}/same.html --json --no-open
diagnose {a} {b} --out {dir}/p.html --json --no-open
diagnose {a} {b} --out {mine}
diagnose {a} {b} --permutations 99999999999999999999
diagnose {a} {b} --seed 99999999999999999999999 --json
diagnose {a} {b} --label \x1b[31m --json
fit {a} {b} --label \x1b[31m --out {dir}/m
fit {a} {b} --label label --weight inf --out {dir}/m
fit {a} {b} --label label --out \udcff/\x1b[31m/{long}
predict {long} {b}
predict {dir} {long}
predict {model} {b} --out {dir}/p.csv --json
predict {model} {b} --out {dir}/p.parquet --proba --risk
predict {model} {b} --out {b}
predict {model} {b} --out {model}/manifest.json
predict {model} {b} --out {model}
predict {model} {b} --id prediction --out {dir}/p.csv
predict {model} {b} --id label --out {dir}/p.csv
predict {model} {odd} --out {dir}/p.csv
predict {model} {escape} --out {dir}/p.csv
predict {model} {empty} --out {dir}/p.csv
predict {model} {b} --out /dev/full
predict {model} {b} --out /dev/null
predict {model} {b} --out /proc/self/mem
predict {model} {b} --out {dir}/p.csv.gz
predict {model} {b} --out -
predict {model}/manifest.json {b}
predict {model} {model}
predict {golden} {b} --out {dir}/p.csv
predict {b} {model}
diagnose {a} {odd} --json --no-open --out {dir}/q.html --permutations 9
diagnose {escape} {escape} --json --no-open --out {dir}/q.html --permutations 9
diagnose {formula} {formula} --json --no-open --out {dir}/q.html --permutations 9
diagnose {a} {b} --out /dev/full --permutations 9
diagnose {a} {b} --out /dev/null --permutations 9
diagnose {a} {b} --out {model}/manifest.json --permutations 9
diagnose {a} {b} --permutations -5
diagnose {a} {b} --permutations 1e3
diagnose {a} {b} --seed -1
diagnose {a} {b} --seed x
diagnose {a} {b} --no-open --out {dir}/q.html --id x --permutations 9
diagnose {a} {b} --id prediction
diagnose sqlite:///{no}?table=x {b}
diagnose sqlite:///{a}?table=x {b}
diagnose postgresql://me:secret@nowhere.invalid/x?table=y {b}
diagnose file:///etc/passwd {b}
diagnose http://nowhere.invalid/a.csv {b}
diagnose /dev/zero {b}
diagnose /dev/null {b}
diagnose /proc/self/environ {b}
diagnose /etc/passwd {b}
diagnose ~ ~
diagnose * {b}
diagnose {a} {b} {a}
fit {a} {b} --label label --out {dir}/m --max-epochs -1
fit {a} {b} --label label --out {dir}/m --max-epochs 1e9
fit {a} {b} --label label --out {dir}/m --hidden 0
fit {a} {b} --label label --out {dir}/m --hidden 99999999999
fit {a} {b} --label label --out {dir}/m --method cmd --moments 99999999999
fit {a} {b} --label x --out {dir}/m
fit {a} {b} --label label --text label --out {dir}/m
fit {a} {b} --label label --out {foreign}
fit {a} {b} --label label --out /dev/null
fit {a} {b} --label label --out /proc/m
fit {a} {a} --label label --out {dir} --regression
reproduce sentiment --data {no} --out {dir}/r
reproduce sentiment --data {dir} --out {a}
reproduce --list
datasets fetch nothing --to {dir}
datasets list --nothing
demo --out {a}
demo --out {dir}/x.json
demo --nothing
--version
--help
predict --help
"""


def command_attempts() -> dict[str, Attempt]:
    lines = ["", *COMMANDS.strip().splitlines(), "diagnose {a} {b} --out " + "x" * 300]

    def attempt(line: str, folder: Path) -> None:
        a, b = tables_in(folder)
        (folder / "empty.csv").touch()
        (folder / "mine.html").write_text("<html>mine</html>")
        (folder / "odd.csv").write_text("x,z\n" + "much,\n1e400,nan\n" * 9)
        (folder / "escape.csv").write_text("x,\x1b[31mz\n" + "1,\x1b]0;title\x07\n2,y\n" * 9)
        (folder / "formula.csv").write_text("=1+1,@x\n" + "=2+5,1\n-1,2\n" * 9)
        (folder / "foreign").mkdir()
        (folder / "foreign" / "weights-0123456789abcdef.safetensors").write_text("mine")
        shutil.copytree(GOLDEN / "table", folder / "model")
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        names = {
            "a": a,
            "b": b,
            "no": folder / "no.csv",
            "dir": folder,
            "empty": folder / "empty.csv",
            "mine": folder / "mine.html",
            "long": "x" * 300,
            "golden": GOLDEN / "classifier",
            **{name: folder / f"{name}.csv" for name in ("odd", "escape", "formula")},
            **{name: folder / name for name in ("foreign", "model")},
        }
        said, arguments, here = io.TextIOWrapper(io.BytesIO(), "utf-8", "replace"), sys.argv, Path.cwd()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        sys.argv = ["momentalign", *(word.format(**names) for word in line.split())]
        os.chdir(folder)
        try:
            with redirect_stdout(said), redirect_stderr(said):
                main()
            code = "no exit code"
        except SystemExit as end:
            code = end.code
        finally:
            sys.argv = arguments
            os.chdir(here)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        assert code in (0, 2, None), code
        said.flush()
        shown = said.buffer.getvalue().decode()  # type: ignore[attr-defined]
        assert all(line.isprintable() for line in shown.splitlines()), "a terminal would obey"
        assert "Traceback" not in shown
        assert all(path.read_bytes() == content for path, content in before.items()), "an input was changed"

    return {line or "no command": partial(attempt, line) for line in lines}


ENVIRONMENTS = """
LANG=C,LC_ALL=C PYTHONIOENCODING=ascii PYTHONIOENCODING=cp1252 PYTHONUTF8=0,LC_ALL=POSIX HOME=/nowhere HOME=
TMPDIR=/nowhere TERM=dumb COLUMNS=1 COLUMNS=x NO_COLOR=1 FORCE_COLOR=1 PYTHONOPTIMIZE=2 PYTHONHASHSEED=7
PYTHONDONTWRITEBYTECODE=1 TZ=Nowhere/None OMP_NUM_THREADS=0 OMP_NUM_THREADS=many NUMBA_CACHE_DIR=/nowhere/below
NUMBA_DISABLE_JIT=1 MOMENTALIGN_DATA=/nowhere XDG_CACHE_HOME=/proc MPLBACKEND=nothing CUDA_VISIBLE_DEVICES=99
PYTHONWARNINGS=always BROWSER=/nowhere DISPLAY=:99 PAGER=/nowhere
"""
SHELLS = """
{run} >&-
{run} 2>&-
{run} --nothing 2> /dev/full
{run} <&-
{run} > /dev/full
{run} | head -c 0
{run} | true
cd {dir}/gone && rmdir {dir}/gone && {run}
umask 0777; {run}
umask 0; {run}
ulimit -n 64; {run}
ulimit -s 1024; {run}
{run} --out {dir}/pagé.html
{run} --out {dir}/$(printf 'x%.0s' $(seq 300)).html
nice -n 19 {run}
ulimit -f 100; {run}
"""


def environment_attempts() -> dict[str, Attempt]:
    variables = [dict(pair.split("=") for pair in word.split(",")) for word in ENVIRONMENTS.split()]

    def attempt(given: dict[str, str], shell: str, folder: Path) -> None:
        a, b = tables_in(folder)
        (folder / "gone").mkdir()
        run = f"{sys.executable} -m momentalign diagnose {a} {b} --json --no-open"
        run += "" if "--out" in shell else f" --out {folder}/page.html"
        source = str(Path(ma.__file__).parents[1])
        done = subprocess.run(
            ["bash", "-c", shell.format(run=run, dir=folder)], env={**os.environ, "PYTHONPATH": source, **given},
            capture_output=True, cwd=folder, timeout=120, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert b"Traceback" not in said, said[-600:]
        assert done.returncode in (0, 2), (done.returncode, said[-300:])

    found = {
        " ".join(f"{name}={value}" for name, value in given.items()): partial(attempt, given, "{run}")
        for given in variables
    }
    return found | {
        shell.format(run="run", dir="."): partial(attempt, {}, shell) for shell in SHELLS.strip().splitlines()
    }
