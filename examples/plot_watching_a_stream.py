"""
Monitoring a stream
===================

A model was adapted to readings of a machine. A monitor compares the moments of the last thousand readings with those
of the readings it was adapted to, raises an alarm when they differ, and names the feature and the moment.
"""

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import momentalign as ma

# %%
# Readings
# --------
# When the bearing wears, vibration gets a long tail; its mean and its variance stay as they were.


def readings(random, rows, *, worn=False):
    """Draw readings of three sensors."""
    vibration = (random.gamma(2.0, size=rows) - 2.0) / 2.0**0.5 if worn else random.normal(size=rows)
    return pd.DataFrame(
        {
            "temperature": random.normal(60.0, 5.0, size=rows),
            "vibration": 0.3 * vibration + 2.0,
            "stops": random.poisson(0.05, size=rows),
        }
    )


random = np.random.default_rng(0)
monitor = ma.DriftMonitor(readings(random, 5000), window=1000, false_alarm_rate=0.01, random_state=0)

# %%
# Four thousand normal rows, then the bearing wears
# -------------------------------------------------
# Batches may have any size. An alarm is raised where the statistic exceeds 1. The program is restarted once on the way:
# a monitor can be stored as plain JSON, without rows, and continues to the last bit.

seen, statistics = [], []
for batch in range(60):
    if batch == 20:
        kept = json.dumps(monitor.to_dict())
        monitor = ma.DriftMonitor.from_dict(json.loads(kept))
    judgement = monitor.update(readings(random, 100, worn=batch >= 40))
    if judgement is not None:
        seen.append(100 * (batch + 1))
        statistics.append(judgement.statistic)
before = sum(value > 1 for rows, value in zip(seen, statistics, strict=True) if rows <= 4000)
first = min(rows for rows, value in zip(seen, statistics, strict=True) if value > 1 and rows > 4000)
print(f"{before} alarms in the first 4,000 rows; the first alarm {first - 4000} rows after the change")
print(judgement.words)

# %%

figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
axis.plot(seen, statistics)
axis.axhline(1, color="gray", linewidth=0.8)
axis.axvline(4000, color="#d9822b", linewidth=0.8)
axis.set(xlabel="rows", ylabel="statistic, alarm above 1", title="the bearing wears from row 4,000 on")
