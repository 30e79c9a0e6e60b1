"""Raw text as rows of numbers: one vocabulary for both domains, rows that stay sparse.

The features of Section 6.3 of Zellinger et al. (2019): the most frequent single words and pairs of words of both
domains. Reference: M. Chen, Z. Xu, K. Weinberger, F. Sha, Marginalized denoising autoencoders for domain adaptation,
2012.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted

from momentalign.errors import InvalidInputError, InvalidTypeError
from momentalign.validation import check_bool, check_choice, positive_int

__all__ = ["DomainVectorizer"]

Weighting: TypeAlias = Literal["log", "binary", "counts"]
# Words of at least two letters or digits.
TOKEN_PATTERN = r"(?u)\b\w\w+\b"  # noqa: S105


class DomainVectorizer(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[misc,call-arg]
    r"""Counts of the most frequent terms of two domains, as CSR rows of float32.

    A term is a word or a run of words. The `max_features` terms with the highest count over the texts of both domains
    are kept, the alphabet decides among equals, and a text with count :math:`c_j` of term j becomes the row
    :math:`\log(1 + c_j)`, :math:`[c_j > 0]` or :math:`c_j`.

    Parameters
    ----------
    max_features
        The number of terms to keep; None keeps all.
    ngram_range
        Least and most words of a term: (1, 2) for single words and pairs.
    weighting
        ``"log"``, ``"binary"`` or ``"counts"``.
    norm
        ``"l2"`` gives every row unit length, None leaves it; a text without a known term stays a row of zeros.
    lowercase
        Whether upper and lower case are the same.
    token_pattern
        Regular expression of a word.

    Attributes
    ----------
    vocabulary_ : list of str
        The kept terms in alphabetical order; column j counts ``vocabulary_[j]``.

    Examples
    --------
    >>> from momentalign.tables.text import DomainVectorizer
    >>> books, kitchen = ["a good read", "good plot, good end"], ["a good pan", "the pan broke"]
    >>> vectorizer = DomainVectorizer(max_features=3, weighting="counts").fit(books, X_target=kitchen)
    >>> vectorizer.get_feature_names_out().tolist()
    ['broke', 'good', 'pan']
    >>> vectorizer.transform(["good, good pan"]).toarray().tolist()
    [[0.0, 2.0, 1.0]]
    """

    def __init__(
        self,
        max_features: int | None = 5000,
        ngram_range: tuple[int, int] = (1, 2),
        weighting: Weighting = "log",
        norm: Literal["l2"] | None = None,
        *,
        lowercase: bool = True,
        token_pattern: str = TOKEN_PATTERN,
    ) -> None:
        self.max_features = max_features
        self.ngram_range = ngram_range
        self.weighting = weighting
        self.norm = norm
        self.lowercase = lowercase
        self.token_pattern = token_pattern

    def fit(self, X: Any, y: Any = None, X_target: Any = None) -> Self:  # noqa: ARG002
        """Choose the terms.

        Parameters
        ----------
        X
            Texts of the source (list, array, Series, or DataFrame of one column); where it holds both domains,
            `X_target` is not needed.
        y
            Not looked at.
        X_target
            Texts of the target.
        """
        self._refuse_bad_parameters()
        texts = _as_texts(X, "X")
        target = [] if X_target is None else _as_texts(X_target, "X_target")
        self.vocabulary_ = self._most_frequent(chain(texts, target))
        return self

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Return a row per text, (texts, terms), CSR of float32."""
        check_is_fitted(self)
        rows = self._counter(np.float32, self.vocabulary_).transform(_as_texts(X, "X"))
        if self.weighting == "log":
            rows.data = np.log1p(rows.data)
        elif self.weighting == "binary":
            rows.data = np.ones_like(rows.data)
        return sparse.csr_matrix(normalize(rows, copy=False) if self.norm == "l2" else rows)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the kept terms in the order of the columns; `input_features` is not looked at."""
        check_is_fitted(self)
        return np.array(self.vocabulary_, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _counter(self, dtype: type, vocabulary: list[str] | None = None) -> CountVectorizer:
        return CountVectorizer(
            lowercase=self.lowercase,
            token_pattern=self.token_pattern,
            ngram_range=tuple(self.ngram_range),
            vocabulary=vocabulary,
            dtype=dtype,
        )

    def _most_frequent(self, texts: Iterable[str]) -> list[str]:
        counter = self._counter(np.int64)
        try:
            counts = counter.fit_transform(texts)
        except ValueError:
            raise InvalidInputError(
                f"X has no term of {self.ngram_range[0]} to {self.ngram_range[1]} words in any text; give longer texts "
                "or change ngram_range or token_pattern."
            ) from None
        totals = np.asarray(counts.sum(axis=0)).ravel()
        # The columns are in alphabetical order, and a stable sort keeps it among equals.
        kept = np.argsort(-totals, kind="stable")[: self.max_features]
        terms: list[str] = counter.get_feature_names_out()[np.sort(kept)].tolist()
        return terms

    def _refuse_bad_parameters(self) -> None:
        if self.max_features is not None:
            positive_int(self.max_features, "max_features", example="5000")
        bounds = self.ngram_range
        if not (isinstance(bounds, (tuple, list)) and len(bounds) == 2 and all(map(_is_count, bounds))):
            raise InvalidInputError(f"ngram_range must be two whole numbers of at least 1, got {bounds!r}; try (1, 2).")
        if bounds[0] > bounds[1]:
            raise InvalidInputError(f"ngram_range must not fall, got {bounds!r}; try {tuple(reversed(bounds))}.")
        check_choice(self.weighting, "weighting", get_args(Weighting))
        check_choice(self.norm, "norm", ("l2", None))
        check_bool(self.lowercase, "lowercase")
        if not _is_pattern(self.token_pattern):
            raise InvalidInputError(
                f"token_pattern must be a regular expression with at most one group, got {self.token_pattern!r}; "
                f"try {TOKEN_PATTERN!r}."
            )


def _is_count(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


def _is_pattern(value: object) -> bool:
    try:
        return isinstance(value, str) and re.compile(value).groups <= 1
    except re.error:
        return False


def _as_texts(texts: Any, name: str) -> list[str]:
    """Return texts as a list, or say which of them is none."""
    if isinstance(texts, str):
        raise InvalidTypeError(f"{name} is one text ({texts[:20]!r}); give a list of texts.")
    if not isinstance(texts, (list, tuple)):
        texts = _one_column(np.asarray(texts), name)
    if not len(texts):
        raise InvalidInputError(f"{name} holds 0 texts; give at least one.")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidTypeError(
                f"{name}: row {row} is {text!r:.40} of type {type(text).__name__}, not a text; make it a str or leave "
                "the row out."
            )
    return list(texts)


def _one_column(texts: NDArray[Any], name: str) -> list[Any]:
    if texts.ndim == 2 and texts.shape[1] == 1:
        texts = texts[:, 0]
    if texts.ndim != 1:
        raise InvalidInputError(
            f"{name} must be one column of texts, got shape {texts.shape}; choose the column that holds the text."
        )
    values: list[Any] = texts.tolist()
    return values
