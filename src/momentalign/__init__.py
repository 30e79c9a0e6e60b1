"""Unsupervised domain adaptation by moment alignment: train where there are labels, work where there are none."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from momentalign.discrepancies.adversarial import AdversarialLoss
    from momentalign.discrepancies.central_moment import CMDLoss, cmd, cmd_terms
    from momentalign.discrepancies.coral import CORALLoss, coral
    from momentalign.discrepancies.mmd import MMDLoss, mmd
    from momentalign.discrepancies.several_domains import MultiDomainCMDLoss, multi_domain_cmd
    from momentalign.estimators.auto import AutoClassifier
    from momentalign.estimators.auto_regressor import AutoRegressor
    from momentalign.estimators.classifier import MANNClassifier
    from momentalign.estimators.moment_map import MomentMap
    from momentalign.estimators.regressor import MANNRegressor
    from momentalign.estimators.tca import TransferComponentAnalysis
    from momentalign.evaluation.bounds import error_bound
    from momentalign.evaluation.class_shares import correct_class_shares, estimate_class_shares
    from momentalign.evaluation.diagnose import diagnose
    from momentalign.evaluation.target_accuracy import estimate_accuracy
    from momentalign.moments.streaming import Moments
    from momentalign.monitoring.monitor import DriftMonitor
    from momentalign.selection.search import LabelFreeSearch, ReverseValidationSearch
    from momentalign.tables.text import DomainVectorizer
    from momentalign.training.deep.adapt import adapt
    from momentalign.training.deep.export import load_weights, save_weights
    from momentalign.training.deep.loaders import PairedLoader
    from momentalign.training.deep.metric import MomentMetric
    from momentalign.training.deep.module import DeepAdaptation
    from momentalign.version import __version__ as __version__
    from momentalign.workflow.export import export_onnx
    from momentalign.workflow.fit import fit
    from momentalign.workflow.model import load

# Public name -> the module that defines it; bound on first use, so that the import itself costs nothing.
_HOMES = {
    "__version__": "momentalign.version",
    "AdversarialLoss": "momentalign.discrepancies.adversarial",
    "AutoClassifier": "momentalign.estimators.auto",
    "AutoRegressor": "momentalign.estimators.auto_regressor",
    "CMDLoss": "momentalign.discrepancies.central_moment",
    "CORALLoss": "momentalign.discrepancies.coral",
    "DeepAdaptation": "momentalign.training.deep.module",
    "DomainVectorizer": "momentalign.tables.text",
    "DriftMonitor": "momentalign.monitoring.monitor",
    "LabelFreeSearch": "momentalign.selection.search",
    "MANNClassifier": "momentalign.estimators.classifier",
    "MANNRegressor": "momentalign.estimators.regressor",
    "MMDLoss": "momentalign.discrepancies.mmd",
    "MomentMap": "momentalign.estimators.moment_map",
    "MomentMetric": "momentalign.training.deep.metric",
    "Moments": "momentalign.moments.streaming",
    "MultiDomainCMDLoss": "momentalign.discrepancies.several_domains",
    "PairedLoader": "momentalign.training.deep.loaders",
    "ReverseValidationSearch": "momentalign.selection.search",
    "TransferComponentAnalysis": "momentalign.estimators.tca",
    "adapt": "momentalign.training.deep.adapt",
    "cmd": "momentalign.discrepancies.central_moment",
    "cmd_terms": "momentalign.discrepancies.central_moment",
    "coral": "momentalign.discrepancies.coral",
    "correct_class_shares": "momentalign.evaluation.class_shares",
    "diagnose": "momentalign.evaluation.diagnose",
    "error_bound": "momentalign.evaluation.bounds",
    "estimate_accuracy": "momentalign.evaluation.target_accuracy",
    "estimate_class_shares": "momentalign.evaluation.class_shares",
    "export_onnx": "momentalign.workflow.export",
    "fit": "momentalign.workflow.fit",
    "load": "momentalign.workflow.model",
    "load_weights": "momentalign.training.deep.export",
    "mmd": "momentalign.discrepancies.mmd",
    "multi_domain_cmd": "momentalign.discrepancies.several_domains",
    "save_weights": "momentalign.training.deep.export",
}

__all__ = [
    "AdversarialLoss",
    "AutoClassifier",
    "AutoRegressor",
    "CMDLoss",
    "CORALLoss",
    "DeepAdaptation",
    "DomainVectorizer",
    "DriftMonitor",
    "LabelFreeSearch",
    "MANNClassifier",
    "MANNRegressor",
    "MMDLoss",
    "MomentMap",
    "MomentMetric",
    "Moments",
    "MultiDomainCMDLoss",
    "PairedLoader",
    "ReverseValidationSearch",
    "TransferComponentAnalysis",
    "adapt",
    "cmd",
    "cmd_terms",
    "coral",
    "correct_class_shares",
    "diagnose",
    "error_bound",
    "estimate_accuracy",
    "estimate_class_shares",
    "export_onnx",
    "fit",
    "load",
    "load_weights",
    "mmd",
    "multi_domain_cmd",
    "save_weights",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'momentalign' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
