import json

import pytest

from momentalign.monitoring.monitor import FeatureChange, Judgement


def judgement(*features, statistic=2.0):
    return Judgement(1500, statistic, 0.001, (0.1, 0.02), tuple(features), 2)


CHANGES = [
    FeatureChange("age", 1, -0.304, 3.0),
    FeatureChange("size", 2, 0.5, 2.0),
    FeatureChange("speed", 3, 0.9, 1.5),
    FeatureChange("last", 1, 0.1, 1.1),
]


def test_words_say_what_moved_and_how():
    assert judgement(*CHANGES).words == (
        "drift after 1,500 rows (p = 0.001): 'age' by -0.30 deviations, 'size' to 1.50 times the variance, 'speed' in "
        "order 3 by +0.90 and 1 more."
    )
    assert judgement(*CHANGES[:1]).words.endswith("'age' by -0.30 deviations.")
    assert "many features moved a little, together 2.00 times the threshold in order 2." in judgement().words
    assert judgement(statistic=1.0).words == "no drift after 1,500 rows (p = 0.001)."


def test_the_alarm_is_what_exceeds_the_threshold():
    assert judgement().alarm
    assert not judgement(statistic=1.0).alarm
    assert judgement().distance == pytest.approx(0.12)


def test_all_of_it_is_plain_json_and_comes_back():
    found = judgement(*CHANGES)
    described = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert described["alarm"] is True
    assert described["words"] == found.words
    assert Judgement.from_dict(described) == found
