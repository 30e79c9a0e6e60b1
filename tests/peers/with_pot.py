"""The same task by optimal transport of the source rows and by aligned activations."""

import numpy as np
import ot
import pytest
from sklearn.linear_model import LogisticRegression

import momentalign as ma

RANDOM = np.random.default_rng(0)
YS, YT = np.arange(300) % 2, np.arange(240) % 2
XS = RANDOM.normal(size=(300, 2)) + 3.0 * YS[:, None]
XT = RANDOM.normal(size=(240, 2)) + 3.0 * YT[:, None] + [0.0, 3.0]


@pytest.fixture
def transport():
    return ot.da.SinkhornTransport(reg_e=1.0)


def test_both_find_the_target(transport):
    moved = transport.fit(Xs=XS, ys=YS, Xt=XT).transform(Xs=XS)
    plain = LogisticRegression().fit(XS, YS).score(XT, YT)
    by_transport = LogisticRegression().fit(moved, YS).score(XT, YT)
    model = ma.MANNClassifier(hidden=(8,), learning_rate=0.1, random_state=0).fit(XS, YS, XT)
    assert plain + 0.05 < min(by_transport, model.score(XT, YT))


def test_moved_rows_are_closer_in_our_distance(transport):
    moved = transport.fit(XS, YS, XT).transform(XS)
    low, high = min(XS.min(), XT.min()), max(XS.max(), XT.max())
    assert ma.cmd(moved, XT, interval=(low, high)) < 0.5 * ma.cmd(XS, XT, interval=(low, high))
