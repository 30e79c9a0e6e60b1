"""A monitor watches the readings of a machine, is stopped, goes on from a file, and says when and what has changed.

Run it::

    python examples/watch_a_stream.py watch.json
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import momentalign as ma


def readings(random: np.random.Generator, rows: int, *, worn: bool = False) -> pd.DataFrame:
    """Readings of three sensors; when the bearing is worn, vibration gets a long tail, its mean and variance stay."""
    vibration = (random.gamma(2.0, size=rows) - 2.0) / 2.0**0.5 if worn else random.normal(size=rows)
    return pd.DataFrame(
        {
            "temperature": random.normal(60.0, 5.0, size=rows),
            "vibration": 0.3 * vibration + 2.0,
            "stops": random.poisson(0.05, size=rows),
        }
    )


def main(path: Path) -> None:
    """Watch 4,000 rows as the model was trained on, then 1,000 of a worn machine, in batches of 100."""
    random = np.random.default_rng(0)
    monitor = ma.DriftMonitor(readings(random, 5000), window=1000, random_state=0)
    alarms = 0
    for _ in range(40):
        judgement = monitor.update(readings(random, 100))
        alarms += judgement is not None and judgement.alarm
    print(f"{alarms} alarms in 4,000 rows without a change")

    path.write_text(json.dumps(monitor.to_dict()))
    monitor = ma.DriftMonitor.from_dict(json.loads(path.read_text()))
    for _ in range(10):
        judgement = monitor.update(readings(random, 100, worn=True))
        if judgement is not None and judgement.alarm:
            print(judgement.words)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "watch.json"))
