"""AutoRegressor: the robust default for continuous targets, where adapting bears the burden of proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from momentalign.estimators.auto import AutoEstimator
from momentalign.estimators.domains import all_or_nothing
from momentalign.estimators.evidence import Z90, source_weights
from momentalign.estimators.learners import Learner
from momentalign.estimators.portfolio import Portfolio
from momentalign.estimators.regressor import ContinuousLabels
from momentalign.evaluation.target_accuracy import TargetEstimate, estimate_accuracy
from momentalign.networks.shallow import Matrix
from momentalign.validation import naming

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AutoRegressor"]

Floats: TypeAlias = NDArray[np.float64]

# An aligned network joins where its held-out R2 is at most so far below the plain one's, and its R2 with the average of
# plain models as the truth is at least so high.
COST_IN_R2, AGREEMENT_IN_R2 = 0.02, 0.8
# An R2 of so much counts as an accuracy of 1 where plain models are weighed by it.
R2_SCALE = 0.3
# Values are not extrapolated further than this part of their range in the source.
BEYOND = 0.1


class _Values(ContinuousLabels):
    """Continuous targets as they are: what standardises them knows the weights of rows."""

    def learn(self, labels: NDArray[Any], rows: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """Check the values and return them."""
        super().learn(labels, rows)
        return labels if rows is None else labels[rows]


class AutoRegressor(RegressorMixin, AutoEstimator):  # type: ignore[misc]
    """The robust default for continuous targets: plain regressors averaged, with an aligned network where it is safe.

    Of shifted features a regression learns little that can be trusted, so adapting bears the burden of proof: an
    aligned network joins the average only where it costs nothing on held-out source rows and agrees with the plain
    models on the target. Predictions stay near the range of the source's values.

    Parameters
    ----------
    random_state, n_jobs, verbose
        As in :class:`AutoClassifier`.

    Attributes
    ----------
    portfolio_ : DataFrame
        One row a candidate: ``name``, ``source_score`` (R2 on held-out source rows), ``estimated_target_score`` (R2
        with the answer as the truth, NaN without a target) and ``weight`` in the answer.
    decision_ : str
        What was done and why, in one sentence.
    estimate_ : TargetEstimate
        Expected R2 on the target with a rough 90 % interval; without a target, that on held-out source rows.

    Examples
    --------
    >>> import numpy as np, momentalign as ma
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(200, 3))
    >>> y = X.sum(axis=1)
    >>> model = ma.AutoRegressor(random_state=0).fit(X, y, X_target=X + 0.1)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self, *, random_state: int | np.random.RandomState | None = None, n_jobs: int | None = None, verbose: int = 0
    ) -> None:
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @all_or_nothing
    def fit(
        self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on labelled source rows and, where given, unlabelled target rows; arguments as in `AutoClassifier`."""
        if len(getattr(y, "shape", ())) > 1:
            with naming("y"):
                y = column_or_1d(y, warn=True)
        problem = self._problem(X, y, X_target, _Values(), sample_domain, sample_weight)
        span = float(np.ptp(problem.labels))
        self.bounds_ = (float(problem.labels.min()) - BEYOND * span, float(problem.labels.max()) + BEYOND * span)
        portfolio = self._train(problem)
        weights, scores = self._weigh(portfolio)
        weights = self._keep(portfolio, weights)
        self.portfolio_ = self._table(portfolio, scores, weights)
        self.estimate_ = self._expected(portfolio, weights)
        return self

    def _weigh(self, portfolio: Portfolio) -> tuple[Floats, list[float]]:
        problem, candidates = portfolio.problem, portfolio.candidates
        scores = []
        for candidate in candidates:
            rows, values = portfolio.held_out(candidate)
            scores.append(_r2(problem.labels[rows], np.clip(values[:, 0], *self.bounds_), problem.weights[rows]))
        plain = [index for index, one in enumerate(candidates) if not one.adapted]
        weights = np.zeros(len(candidates))
        weights[plain] = source_weights([R2_SCALE * float(np.clip(scores[index], 0.0, 1.0)) for index in plain])
        if not problem.targets:
            self.decision_ = "Not adapted: no target rows were given; the answer is an average of plain models."
            return weights, scores
        (adapted,) = [index for index, one in enumerate(candidates) if one.adapted]
        network = next(index for index in plain if candidates[index].kind == "network")
        found = [np.clip(portfolio.on_target(one)[:, 0], *self.bounds_) for one in candidates]
        answer = sum(weight * one for weight, one in zip(weights, found, strict=True))
        cost, agreeing = scores[network] - scores[adapted], _r2(np.asarray(answer), found[adapted])
        if cost <= COST_IN_R2 and agreeing >= AGREEMENT_IN_R2:
            weights = weights * len(plain) / (len(plain) + 1)
            weights[adapted] = 1.0 / (len(plain) + 1)
            self.decision_ = (
                "Adapted in part: an aligned network costs nothing on held-out source rows, agrees with the plain "
                f"models on the target (R2 {agreeing:.2f}), and has a weight of {weights[adapted]:.2f} beside them."
            )
        else:
            reason = (
                f"an aligned network loses {cost:.2f} R2 on held-out source rows"
                if cost > COST_IN_R2
                else f"an aligned network does not agree with the plain models on the target (R2 {agreeing:.2f})"
            )
            self.decision_ = f"Not adapted: {reason}; the answer is an average of plain models."
        return weights, scores

    def _expected(self, portfolio: Portfolio, weights: Floats) -> TargetEstimate:
        """Return the R2 to be expected of the answer."""
        problem = portfolio.problem
        rows, answer = portfolio.answer_held_out(weights, self.bounds_)
        if not problem.targets:
            value = _r2(problem.labels[rows], answer[:, 0], problem.counts[rows])
            spread = Z90 * 2.0 * np.sqrt(max(1.0 - value, 0.01) / len(rows))
            return TargetEstimate(value, value - spread, min(1.0, value + spread), "r2")
        on_target = portfolio.answer_on_target(weights, self.bounds_)
        source = problem.source[rows]
        model = _Answer(source, answer[:, 0], on_target[:, 0])
        return estimate_accuracy(model, source, problem.labels[rows], problem.shown("source"), metric="r2")

    def _table(self, portfolio: Portfolio, scores: list[float], weights: Floats) -> pd.DataFrame:
        import pandas as pd

        expected = [np.nan] * len(scores)
        if portfolio.problem.targets:
            each = [np.clip(portfolio.on_target(one)[:, 0], *self.bounds_) for one in portfolio.candidates]
            answer = np.asarray(sum(weight * one for weight, one in zip(weights, each, strict=True)))
            expected = [_r2(answer, one) for one in each]
        names = [candidate.name for candidate in portfolio.candidates]
        return pd.DataFrame(
            {"name": names, "source_score": scores, "estimated_target_score": expected, "weight": weights}
        )

    def _of(self, learner: Learner, rows: Matrix) -> Floats:
        return np.clip(learner.predict(rows, classes=0), *self.bounds_)

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: bool = True) -> Floats:  # noqa: ARG002
        """Return the value of each row of the target."""
        return np.asarray(self._combined(X)[:, 0])

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sample_domain: Any = None,  # noqa: ARG002
        allow_source: bool = True,  # noqa: ARG002
    ) -> float:
        """Return R2 on rows of the target."""
        return float(super().score(X, y, sample_weight))


class _Answer(NamedTuple):
    """The answer for held-out source rows and for rows of the target, as a fitted regressor."""

    source: Matrix
    of_source: Floats
    of_target: Floats

    def predict(self, X: Matrix) -> Floats:
        return self.of_source if X is self.source else self.of_target


def _r2(truth: Floats, values: Floats, weights: Floats | None = None) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(truth, values, sample_weight=weights)) if len(truth) > 1 else 0.0
