import doctest
import importlib
import inspect
import pkgutil

import pytest

import momentalign

NAMES = [
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
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(momentalign.__path__, "momentalign.")
    if not module.name.endswith("__main__")
)


def test_the_public_names_are_these_and_no_others():
    assert momentalign.__all__ == NAMES
    assert sorted(NAMES) == NAMES
    assert dir(momentalign) == sorted([*NAMES, "__version__"])


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_bound_and_described(name):
    value = getattr(momentalign, name)
    assert value.__name__ == name
    assert value.__module__.startswith("momentalign.")
    assert name in importlib.import_module(value.__module__).__all__
    assert len(inspect.getdoc(value).splitlines()[0]) > 20
    assert ">>> " in inspect.getdoc(value), "an example that the doctests run"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'momentalign' has no attribute 'cmmd'"):
        _ = momentalign.cmmd


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is(module):
    assert importlib.import_module(module).__doc__.strip()


def test_every_example_in_the_docstrings_works():
    results = {module: doctest.testmod(importlib.import_module(module)) for module in MODULES}
    assert {module: result.failed for module, result in results.items() if result.failed} == {}
    assert sum(result.attempted for result in results.values()) > 30
