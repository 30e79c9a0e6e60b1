"""The monitor beside river, frouros, alibi-detect and alarms at intervals: ``python -m benchmarks.monitor_peers``.

Every stream has a reference, rows without drift and then, from a known row on, rows of another distribution: five
changes of generated features, the next batch of gas sensors, another group of the census, another hospital. A monitor
sees no labels. A *false alarm* is a window of the part without drift in which an alarm was raised; a drift is *found*
if there is an alarm within two windows of it, and the delay is the number of rows until the first one. F1 counts drifts
found, drifts missed and false alarms.

``DriftMonitor`` has a stated rate, 0.01 or 0.001 per window. Every peer gets, in hindsight, the setting that comes
closest to the false alarms of the monitor on all rows without drift, and raises no more of them. ``--river PYTHON``,
``--frouros PYTHON`` and ``--alibi PYTHON`` name interpreters of environments that have numpy and these libraries; those
without one are left out. ``--accuracy`` measures, under covariate drift, how far the expected accuracy is from the true
one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure

Floats = NDArray[np.float64]
Alarms = dict[str, dict[str, list[int]]]  # By setting and stream, the rows at which an alarm was raised.

RATES = 0.01, 0.001
HORIZON = 2  # Windows within which a drift must be found.
RESULTS = Path(__file__).parent / "results" / "monitor_peers.json"
OURS, CLOCK = "momentalign DriftMonitor", "an alarm at a fixed interval"


class Stream(NamedTuple):
    """Rows of a stream, the model's confidence in each, and the row from which on they drift, -1 where they do not."""

    reference: Floats
    rows: Floats
    reference_scores: Floats
    scores: Floats
    point: int
    window: int


# Streams


def generated(repeats: int) -> Iterator[tuple[str, Stream]]:
    """Five normal features; the fifth of the changes is gradual. The scores are those of a fixed linear model."""
    random = np.random.default_rng(0)
    first = np.arange(5) == 0
    changes: dict[str, Callable[[Floats], Floats]] = {
        "mean of one by 0.4": lambda rows: rows + 0.4 * first,
        "variance of one times 1.6": lambda rows: rows * np.where(first, 1.6**0.5, 1.0),
        "skewness of one by 1": lambda rows: np.where(
            first, (random.gamma(4.0, size=(len(rows), 1)) - 4.0) / 2.0, rows
        ),
        "mean of all by 0.15": lambda rows: rows + 0.15,
        "mean of one by 0.8, gradually": lambda rows: rows + 0.8 * first * np.linspace(0.0, 1.0, len(rows))[:, None],
    }
    for repeat in range(repeats):
        for name, change in changes.items():
            before, after = random.normal(size=(3500, 5)), change(random.normal(size=(1000, 5)))
            yield f"generated, {name}, {repeat}", _stream(before[:1500], np.vstack([before[1500:], after]), 2000, 500)
    for repeat in range(4 * repeats):
        before = random.normal(size=(3500, 5))
        yield f"generated, calibration, {repeat}", _stream(before[:1500], before[1500:], -1, 500)


def _stream(reference: Floats, rows: Floats, point: int, window: int) -> Stream:
    centre, scale = reference.mean(axis=0), np.maximum(reference.std(axis=0), 1e-9)
    direction = np.cos(np.arange(reference.shape[1]))
    margins = (abs((part - centre) / scale @ direction) for part in (reference, rows))
    return Stream(reference, rows, *(1.0 / (1.0 + np.exp(-margin)) for margin in margins), point, window)


def real(data: Path, repeats: int) -> Iterator[tuple[str, Stream]]:
    """Domains of the development tasks: half of one is the reference, the other half and the next domain the stream."""
    for family, before, after, window in _domains(data):
        for repeat in range(2 * repeats):
            random = np.random.default_rng(repeat)
            order = random.permutation(len(before))
            reference, rest = before[order[: len(order) * 6 // 10]], before[order[len(order) * 6 // 10 :]][: 4 * window]
            drifted = after[random.permutation(len(after))[: 2 * window]]
            if repeat < repeats:
                yield f"{family}, {repeat}", _stream(reference, np.vstack([rest, drifted]), len(rest), window)
            else:
                yield f"{family}, calibration, {repeat}", _stream(reference, rest, -1, window)


def _domains(data: Path) -> Iterator[tuple[str, Floats, Floats, int]]:
    import pandas as pd

    with np.load(data / "shifts.npz", allow_pickle=False) as arrays:
        # Of each sensor the steady state; the batches are months of one laboratory, in order.
        X, batch = arrays["gas_X"][:, ::8].astype(np.float64), arrays["gas_batch"]
        for one, other in ((2, 3), (3, 6), (6, 2), (9, 8)):
            yield f"gas {one}-{other}", X[batch == one], X[batch == other], 200
        X, hospital = arrays["heart_X"].astype(np.float64), arrays["heart_hospital"]
        whole = np.isfinite(X).mean(axis=0) > 0.9
        X = np.where(np.isnan(X[:, whole]), np.nanmedian(X[:, whole], axis=0), X[:, whole])
        for one, other in ((0, 1), (1, 0), (0, 3)):
            yield f"hospitals {one}-{other}", X[hospital == one], X[hospital == other], 50
    frame = pd.read_csv(data / "adult.csv.gz").drop(columns="fnlwgt")
    numbers = frame.select_dtypes("number").to_numpy(np.float64)
    private = frame.workclass == "Private"
    groups = {
        "private to public": (private, frame.workclass.isin(["State-gov", "Local-gov", "Federal-gov"])),
        "men to women": (frame.sex == "Male", frame.sex == "Female"),
        "born in to born outside": (frame.country == "United-States", frame.country.ne("United-States")),
    }
    for name, (one, other) in groups.items():
        yield f"census, {name}", numbers[one][:3500], numbers[other], 300


def save(streams: Mapping[str, Stream], path: Path) -> None:
    """Write streams for another interpreter."""
    np.savez(path, **{f"{name}|{part}": value for name, s in streams.items() for part, value in s._asdict().items()})


def load(path: Path) -> dict[str, Stream]:
    """Read them again."""
    with np.load(path, allow_pickle=False) as arrays:
        names = dict.fromkeys(key.split("|")[0] for key in arrays.files)
        return {name: Stream(**{part: arrays[f"{name}|{part}"][()] for part in Stream._fields}) for name in names}


# Detectors: the alarms of each setting. Several features share the level of a test among them (Bonferroni).


def by_us(streams: Mapping[str, Stream]) -> dict[str, Alarms]:
    """The monitor, and alarms at fixed intervals."""
    import momentalign as ma

    ours: Alarms = {}
    clock: Alarms = {}
    for name, stream in streams.items():
        for rate in RATES:
            monitor = ma.DriftMonitor(
                stream.reference, window=int(stream.window), false_alarm_rate=rate, n_resamples=2000, random_state=0
            )
            monitor.update(stream.rows)
            raised = [judgement.rows for judgement in monitor.history if judgement.alarm]
            ours.setdefault(f"false_alarm_rate={rate:g}", {})[name] = raised
        for windows in (0.1, 0.5, 1.0, 2.0, 4.0, 20.0):
            every = max(1, int(windows * stream.window))
            clock.setdefault(f"every {windows:g} windows", {})[name] = list(range(every, len(stream.rows) + 1, every))
    return {OURS: ours, CLOCK: clock}


def by_river(streams: Mapping[str, Stream]) -> dict[str, Alarms]:
    """A detector for each feature, and one for the scores; each has seen the reference."""
    from river import drift

    makers: dict[str, dict[str, Callable[[int], Any]]] = {
        "river ADWIN": {
            f"delta={delta:g}": lambda width, d=delta: drift.ADWIN(delta=d / width)
            for delta in (2e-1, 2e-2, 2e-3, 1e-4)
        },
        "river PageHinkley": {
            f"threshold={height:g}": lambda _, h=height: drift.PageHinkley(threshold=h) for height in (15.0, 30.0, 50.0)
        },
        "river KSWIN": {
            f"alpha={alpha:g}": lambda width, a=alpha: drift.KSWIN(alpha=a / width, seed=0) for alpha in (5e-3, 1e-4)
        },
    }
    found: dict[str, Alarms] = {}
    for detector, settings in makers.items():
        for setting, make in settings.items():
            for name, stream in streams.items():
                for what, (reference, rows) in _views(stream).items():
                    if "KSWIN" in detector and what == "features":
                        continue  # A test for every row and feature: a thousand times the work of the others.
                    raised: set[int] = set()
                    for column in range(rows.shape[1]):
                        one = make(rows.shape[1])
                        # KSWIN remembers one window and no more.
                        for value in reference[-int(stream.window) * ("KSWIN" in detector) :, column].tolist():
                            one.update(value)
                        for row, value in enumerate(rows[:, column].tolist(), start=1):
                            one.update(value)
                            if one.drift_detected:
                                raised.add(row)
                    found.setdefault(f"{detector} of {what}", {}).setdefault(setting, {})[name] = sorted(raised)
    return found


def _views(stream: Stream) -> dict[str, tuple[Floats, Floats]]:
    centre, scale = stream.reference.mean(axis=0), np.maximum(stream.reference.std(axis=0), 1e-9)
    return {
        "features": ((stream.reference - centre) / scale, (stream.rows - centre) / scale),
        "scores": (stream.reference_scores[:, None], stream.scores[:, None]),
    }


LEVELS = [float(f"{10 ** (-power / 12):.2g}") for power in range(5, 60)]
PValue = Callable[[Floats], float]


def by_windows(tests: Mapping[str, Callable[[Floats], PValue]], streams: Mapping[str, Stream]) -> dict[str, Alarms]:
    """Tests of the last window against the reference, every tenth of a window."""
    found: dict[str, Alarms] = {}
    for kind, test_against in tests.items():
        for name, stream in streams.items():
            reference, rows = _views(stream)["features"]
            p_value, window = test_against(reference), int(stream.window)
            ends = range(window, len(rows) + 1, window // 10)
            values = [p_value(rows[end - window : end]) for end in ends]
            for level in LEVELS:
                raised = [end for end, value in zip(ends, values, strict=True) if value < level]
                found.setdefault(kind, {}).setdefault(f"p < {level:g}", {})[name] = raised
    return found


def by_frouros(streams: Mapping[str, Stream]) -> dict[str, Alarms]:
    """Tests of each feature, and the maximum mean discrepancy with a normal approximation of what chance gives."""
    from frouros.detectors.data_drift import MMD, KSTest
    from scipy import stats

    def ks_against(reference: Floats) -> PValue:
        detectors = [KSTest() for _ in reference.T]
        for detector, column in zip(detectors, reference.T, strict=True):
            detector.fit(X=np.ascontiguousarray(column))

        def smallest(window: Floats) -> float:
            columns = zip(detectors, window.T, strict=True)
            return len(detectors) * min(float(d.compare(X=np.ascontiguousarray(c))[0].p_value) for d, c in columns)

        return smallest

    def mmd_against(reference: Floats) -> PValue:
        kept, rest = np.array_split(np.random.default_rng(0).permutation(reference)[:800], 2)
        detector = MMD()
        detector.fit(X=kept)
        scale: dict[int, tuple[float, float]] = {}

        def distance(rows: Floats) -> float:
            return float(detector.compare(X=rows)[0].distance)

        def p_value(window: Floats) -> float:
            if len(window) not in scale:
                random = np.random.default_rng(0)
                chance = [distance(random.choice(rest, len(window))) for _ in range(20)]
                scale[len(window)] = float(np.mean(chance)), float(np.std(chance))
            mean, spread = scale[len(window)]
            return float(stats.norm.sf((distance(window) - mean) / spread))

        return p_value

    tests = {"KSTest": ks_against, "MMD": mmd_against}
    return by_windows({f"frouros {name}": test for name, test in tests.items()}, streams)


def by_alibi(streams: Mapping[str, Stream]) -> dict[str, Alarms]:
    """Its test of all features; its online detectors take ten seconds and more to set up for one reference."""
    from alibi_detect.cd import KSDrift

    def ks_against(reference: Floats) -> PValue:
        detector = KSDrift(reference, p_val=0.05, correction="bonferroni")
        return lambda window: float(min(detector.predict(window)["data"]["p_val"])) * reference.shape[1]

    return by_windows({"alibi-detect KSDrift": ks_against}, streams)


DETECTORS = {"river": by_river, "frouros": by_frouros, "alibi": by_alibi}


# Scores


class Score(NamedTuple):
    """What alarms are worth on streams."""

    f1: float
    found: int
    missed: int
    false_alarms: int
    delay: float


def score(alarms: Mapping[str, Sequence[int]], streams: Mapping[str, Stream]) -> Score:
    """Count drifts found and missed and false alarms; the delay is the median, in windows, a missed drift the last."""
    found, wrong, delays = 0, 0, []
    for name, stream in streams.items():
        rows, window = np.asarray(alarms[name], int), int(stream.window)
        end = int(stream.point) if stream.point >= 0 else len(stream.rows)
        wrong += len(np.unique((rows[rows <= end] - 1) // window))
        if stream.point >= 0:
            after = rows[(rows > end) & (rows <= end + HORIZON * window)]
            found += len(after) > 0
            delays.append((after[0] - end) / window if len(after) else float(HORIZON))
    missed = len(delays) - found
    f1 = 2 * found / max(2 * found + missed + wrong, 1)
    return Score(f1, found, missed, wrong, float(np.mean(delays)) if delays else 0.0)


def table(found: Mapping[str, Alarms], streams: Mapping[str, Stream]) -> dict[str, dict[str, Any]]:
    """By rate and detector, the setting closest to the monitor's false alarms from below, and its scores."""
    test = {name: stream for name, stream in streams.items() if stream.point >= 0}
    result: dict[str, dict[str, Any]] = {}
    for rate in RATES:
        ours = f"false_alarm_rate={rate:g}"
        allowed = score(found[OURS][ours], streams).false_alarms
        rows = result[f"{rate:g}"] = {}
        for detector, settings in found.items():
            if detector == OURS:
                settings = {ours: settings[ours]}
            scored = {setting: (score(alarms, streams), score(alarms, test)) for setting, alarms in settings.items()}
            if detector == CLOCK:  # Even with the interval that suits it best.
                chosen = max(scored, key=lambda setting: scored[setting][1].f1)
            else:
                few = [setting for setting in scored if scored[setting][0].false_alarms <= allowed]
                if not few:
                    continue
                chosen = max(few, key=lambda setting: (scored[setting][0].false_alarms, scored[setting][1].f1))
            rows[detector] = {"setting": chosen, **scored[chosen][0]._asdict()}
            for kind in ("generated", "gas", "hospitals", "census"):
                some = {name: stream for name, stream in test.items() if name.startswith(kind)}
                rows[detector][kind] = score(settings[chosen], some)._asdict()
    return result


# Accuracy


def expected_accuracy(data: Path) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Of models on streams of covariate drift, the expected and the true accuracy of each window."""
    from sklearn.base import clone
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import momentalign as ma

    models = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        "random forest": RandomForestClassifier(100, random_state=0),
        "network": make_pipeline(
            StandardScaler(), ma.MANNClassifier(hidden=(20,), discrepancy=None, max_epochs=30, random_state=0)
        ),
    }
    for family, (X, y), windows in _drifting(data):
        half = len(X) // 2
        for name, model in models.items():
            fitted = clone(model).fit(X[:half], y[:half])
            labelled, labels = X[half:][:1500], y[half:][:1500]
            monitor = ma.DriftMonitor(
                labelled, window=500, model=fitted, X=labelled, y=labels, n_resamples=200, random_state=0
            )
            figures = []
            for rows, truth in windows:
                monitor.update(rows)
                expected = [one.accuracy for one in monitor.history if one.accuracy is not None][-1]
                figures.append((expected.value, float(np.mean(fitted.predict(rows) == truth))))
            yield f"{family}, {name}", figures


def _drifting(data: Path) -> Iterator[tuple[str, tuple[Any, Any], list[tuple[Any, Any]]]]:
    """Labelled rows, and windows of 500 rows that drift: P(x) changes, P(y | x) does not."""
    import pandas as pd

    random = np.random.default_rng(0)

    def drawn(rows: int, drift: float) -> tuple[Floats, Any]:
        X = random.normal(size=(rows, 4))
        X[:, 1] += drift
        return X, (random.random(rows) < 1 / (1 + np.exp(-4 * (X[:, 0] - 0.35 * X[:, 1] ** 2 + 0.3)))).astype(int)

    yield "curved boundary", drawn(4000, 0.0), [drawn(500, drift) for drift in np.linspace(0.0, 1.8, 8)]
    frame = pd.read_csv(data / "adult.csv.gz").drop(columns="fnlwgt").dropna().sample(16_000, random_state=0)
    X = pd.get_dummies(frame.drop(columns="income")).to_numpy(np.float64)
    with np.load(data / "shifts.npz", allow_pickle=False) as arrays:
        known = arrays["gas_batch"] <= 6
        gas = arrays["gas_X"][known][:, ::8].astype(np.float64), arrays["gas_y"][known]
    tables = {
        "census, older and older": (X, frame.income.str.contains(">50").to_numpy().astype(int), frame.age.to_numpy()),
        "gas, stronger and stronger": (*gas, gas[0].mean(axis=1)),
    }
    for name, (rows, labels, along) in tables.items():
        order = random.permutation(len(rows))
        first, rest = np.array_split(order, 2)
        tilt = (along[rest] - along[rest].mean()) / along[rest].std()
        windows = []
        for drift in np.linspace(0.0, 1.5, 8):
            weights = np.exp(drift * tilt)
            chosen = random.choice(rest, 500, replace=False, p=weights / weights.sum())
            windows.append((rows[chosen], labels[chosen]))
        yield name, (rows[first], labels[first]), windows


def figures(result: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield how far the monitor is ahead of the best peer, and the errors of the expected accuracy."""
    for rate, detectors in result.get("detectors", {}).items():
        peers = [row for name, row in detectors.items() if name not in (OURS, CLOCK)]
        ours = detectors[OURS]
        name = f"false alarm rate {rate}"
        ahead = ours["f1"] - max(row["f1"] for row in peers)
        yield Figure("monitor_peers", f"{name}: F1 minus that of the best peer", ahead, at_least=0.0)
        ahead = min(row["delay"] for row in peers) - ours["delay"]
        yield Figure("monitor_peers", f"{name}: delay of the quickest peer minus ours, windows", ahead, at_least=0.0)
    for name, pairs in result.get("accuracy", {}).items():
        error = float(np.mean([abs(expected - true) for expected, true in pairs]))
        yield Figure("monitor_peers", f"expected accuracy, {name}: mean absolute error", error, at_most=0.05)


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for, add it to the results, and print every figure as a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--detect", nargs=3, metavar=("LIBRARY", "STREAMS", "OUT"), help=argparse.SUPPRESS)
    for library in DETECTORS:
        parser.add_argument(f"--{library}", type=Path, metavar="PYTHON")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if options.detect:
        library, streams, out = options.detect
        Path(out).write_text(json.dumps(DETECTORS[library](load(Path(streams)))))
        return 0
    from benchmarks.shift_tasks import data_folder

    result = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    result["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    if options.accuracy:
        result["accuracy"] = dict(expected_accuracy(data_folder(options.data)))
    else:
        result["detectors"] = compare(data_folder(options.data), options)
        result["command"] = f"python -m benchmarks.monitor_peers --repeats {options.repeats}"
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    failed = False
    for figure in figures(result):
        print(figure.line(), flush=True)
        failed |= not figure.passed
    return int(failed)


def compare(data: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run every detector, each library in its own interpreter."""
    streams = dict([*generated(options.repeats), *real(data, options.repeats)])
    found = by_us(streams)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "streams.npz", Path(folder) / "alarms.json"
        save(streams, path)
        for library in DETECTORS:
            python = getattr(options, library)
            if python is not None:
                command = [python, "-m", "benchmarks.monitor_peers", "--detect", library, path, out]
                subprocess.run(command, check=True)  # noqa: S603
                found |= json.loads(out.read_text())
    return table(found, streams)


if __name__ == "__main__":
    sys.exit(main())
