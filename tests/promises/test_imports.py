"""Importing the package costs nothing and changes nothing."""

import json
import subprocess
import sys

GLOBALS = """
import json, locale, logging, os, random, signal, sys, warnings
import numpy as np, torch, sklearn
def settings():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return repr([
        np.geterr(), np.get_printoptions(), np.random.get_state()[1].tolist()[:5], random.getstate()[1][:5],
        torch.get_default_dtype(), torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_rng_state()[:40],
        torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark, torch.is_grad_enabled(),
        torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32, torch.is_anomaly_enabled(),
        sklearn.get_config(), warnings.filters[:20], dict(os.environ), os.getcwd(), sys.path,
        locale.setlocale(locale.LC_ALL),
        logging.getLogger().handlers, logging.getLogger().level, sys.getrecursionlimit(), handlers, sys.excepthook,
        logging.getLogger("momentalign").handlers, logging.getLogger("momentalign").level,
    ])
import scipy.sparse, sklearn.base, joblib, numba, sklearn.model_selection, pytorch_lightning, lightning_fabric
before = settings()
import momentalign
values = [getattr(momentalign, name) for name in dir(momentalign)]
from momentalign.training import loops
after = settings()
assert before == after, (before, after)
"""

TIMES = """
import json, time
def seconds(action):
    # Time of this process: others do not lengthen it.
    started = time.process_time()
    action()
    return time.process_time() - started
def libraries():
    import numba, pytorch_lightning, scipy.special, sklearn.base, sklearn.model_selection
def touch(*names):
    import momentalign
    for name in names or dir(momentalign):
        getattr(momentalign, name)
times = {"libraries": seconds(lambda: __import__("torch")), "package": seconds(lambda: __import__("momentalign"))}
times["distances"] = seconds(lambda: touch("cmd", "cmd_terms", "CMDLoss", "mmd", "MMDLoss", "coral", "CORALLoss"))
times["libraries"] += seconds(libraries)
times["estimators"] = seconds(touch)
print(json.dumps(times))
"""


def _python(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_no_global_setting_is_touched():
    _python(GLOBALS)


def test_the_bare_import_imports_nothing_heavy():
    loaded = json.loads(
        _python("import json, sys, momentalign; dir(momentalign); print(json.dumps(list(sys.modules)))")
    )
    heavy = {"torch", "numpy", "scipy", "sklearn", "numba", "joblib", "pandas", "rich", "safetensors"}
    heavy |= {"pytorch_lightning", "pyarrow", "PIL", "matplotlib"}
    assert heavy & set(loaded) == set()


def test_distances_of_few_numbers_import_no_compiler():
    loaded = _python(
        "import sys, momentalign as ma; ma.CMDLoss, ma.MMDLoss, ma.CORALLoss, ma.MultiDomainCMDLoss\n"
        "ma.cmd([[0.0]], [[1.0]], cross=2); print('numba' in sys.modules, 'torch' in sys.modules)"
    )
    assert loaded.split() == ["False", "True"]


def test_every_name_takes_at_most_a_fifth_of_the_time_of_the_libraries_it_stands_on():
    """About half a second, as a part of theirs, since a busy machine lengthens both; asked three times."""
    parts = []
    for _ in range(3):
        times = json.loads(_python(TIMES))
        parts.append(sum(time for name, time in times.items() if name != "libraries") / times["libraries"])
        if parts[-1] <= 0.2:
            return
    raise AssertionError(f"three times over a fifth: {parts}")
