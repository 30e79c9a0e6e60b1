"""Hostile files for every loader: estimators, models of tables, deep checkpoints and weights of a network.

Each is refused with an error of ours that names the place, in less than twice the memory of the file; nothing is run,
imported, written or sent, which the interpreter itself is asked (audit events, see audit_worker.py).
"""

import hashlib
import io
import json
import os
import pickle
import re
import shutil
import socket
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as pack_arrays

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"
SOUND = {"estimator": "classifier", "table": "table", "deep": "deep/last", "network": "network.safetensors"}
FOLDERS = ("estimator", "table", "deep")
LARGE = 8 * 2**20


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("exploded",))


def zip_bomb():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(50_000_000))
    return content.getvalue()


def torch_file():
    content = io.BytesIO()
    torch.save({"weight": Bomb()}, content)
    return content.getvalue()


def object_array():
    content = io.BytesIO()
    np.save(content, np.array([Bomb()], dtype=object), allow_pickle=True)
    return content.getvalue()


def headed(header, numbers=bytes(8), *, length=None):
    content = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(content) if length is None else length) + content + numbers


def tensor(name, begin, end, *, dtype="F32", shape="[2]"):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'


# What stands in the place of the numbers, with the digest it should have where there is one.
CONTENTS = {
    "pickle": pickle.dumps(Bomb()),
    "torch file with a pickle": torch_file(),
    "zip bomb": zip_bomb(),
    "array of objects": object_array(),
    "nothing": b"",
    "seven bytes": bytes(7),
    "huge header": headed("{}", length=2**63),
    "header beyond the file": headed("{}", length=100),
    "header of an exabyte": headed("{}", length=2**60),
    "header nested deeply": headed("[" * 100_000),
    "header that is a list": headed("[]"),
    "header in UTF-16": headed(f"{{{tensor('a', 0, 8)}}}".encode("utf-16-le")),
    "name that is not UTF-8": headed(b'{"\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
    "tensor that is no entry": headed('{"a":7}'),
    "overlapping tensors": headed(f"{{{tensor('a', 0, 8)},{tensor('b', 4, 12)}}}", bytes(12)),
    "a hole between tensors": headed(f"{{{tensor('a', 0, 8)},{tensor('b', 12, 20)}}}", bytes(20)),
    "a name twice": headed(f"{{{tensor('a', 0, 8)},{tensor('a', 0, 8, dtype='I32')}}}"),
    "negative offsets": headed(f"{{{tensor('a', -8, 0)}}}"),
    "offsets backwards": headed(f"{{{tensor('a', 8, 0)}}}"),
    "offsets beyond the file": headed(f"{{{tensor('a', 0, 2**40, shape=f'[{2**38}]')}}}"),
    "shape beyond the file": headed(f"{{{tensor('a', 0, 8, shape=f'[{2**62},{2**62}]')}}}"),
    "negative shape": headed(f"{{{tensor('a', 0, 8, shape='[-1,-2]')}}}"),
    "too many dimensions": headed(f"{{{tensor('a', 0, 4, shape=[1] * 100)}}}", bytes(4)),
    "type of objects": headed(f"{{{tensor('a', 0, 8, dtype='O')}}}"),
    "no tensors and bytes": headed("{}"),
    "random": np.random.default_rng(0).bytes(5000),
}


def resealed(body):
    text = json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False)
    body["digest"] = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False)


def weights_in(folder):
    (path,) = folder.glob("weights-*.safetensors")
    return path


def rewrite_manifest(folder, change):
    manifest = folder / "manifest.json"
    body = json.loads(manifest.read_text(encoding="utf-8"))
    del body["digest"]
    change(body)
    manifest.write_text(resealed(body), encoding="utf-8")


def put(folder, content):
    """Give a folder other weights, with the digest and the size they should have."""
    weights = weights_in(folder)
    weights.write_bytes(content)
    files = {weights.name: hashlib.sha256(content).hexdigest()}
    rewrite_manifest(folder, lambda body: body.update(files=files, bytes=len(content)))


def polyglot(path):
    """A safetensors file that is a ZIP archive as well."""
    content = io.BytesIO(path.read_bytes())
    content.seek(0, io.SEEK_END)
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    return content.getvalue()


def spoiled(path):
    """The same weights, larger than the rest of the test, with a NaN in one place."""
    arrays = dict(read_arrays(path.read_bytes()))
    arrays["large"] = np.zeros(LARGE // 4, np.float32)
    arrays["large"][-1] = np.nan
    return pack_arrays(arrays)


def replaced(make):
    def spoil(path):
        path.unlink()
        make(path)

    return spoil


def unix_socket(path):
    # A path of a socket is short.
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("s")
        Path("s").rename(path.name)
    finally:
        os.chdir(here)


PLACES = {
    "link to a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "pipe": replaced(os.mkfifo),
    "folder": replaced(Path.mkdir),
    "socket": replaced(unix_socket),
    "two gigabytes of nothing": lambda path: os.truncate(path, 2**31),
}
LINKS = {
    "link": replaced(lambda path: path.symlink_to("/etc/passwd")),
    "link to what was there": lambda path: path.symlink_to(path.rename(path.with_name("moved"))),
    "link to nothing": replaced(lambda path: path.symlink_to("/nowhere")),
    "hard link to another file": replaced(lambda path: path.hardlink_to(path.parents[1] / "other")),
    "gone": Path.unlink,
}
MANIFESTS = {
    "names a file above": lambda body: body.update(files={"../other": "0"}),
    "names a file far away": lambda body: body.update(files={"/etc/passwd": "0"}),
    "names a file with a zero byte": lambda body: body.update(files={"weights-\0.safetensors": "0"}),
    "names a class of the system": lambda body: body["description"].update({"class": "os.system", "kind": "x"}),
    "is of a newer format": lambda body: body.update(format_version=2),
    "is of no format": lambda body: body.pop("format"),
    "describes nothing": lambda body: body.update(description={}),
    "is nested deeply": lambda body: body["description"].update({"class": nested(100), "kind": nested(100)}),
}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def lay_out_folder(place, kind):
    """Copies of a sound folder, each spoiled in one way."""

    def copy(name):
        shutil.copytree(GOLDEN / SOUND[kind], place / name)
        size = weights_in(place / name).stat().st_size
        rewrite_manifest(place / name, lambda body: body.update(bytes=size))
        return place / name

    for name, content in CONTENTS.items():
        put(copy(f"weights: {name}"), content)
        (copy(f"manifest: {name}") / "manifest.json").write_bytes(content)
    for name, spoil in {**PLACES, **LINKS}.items():
        spoil(weights_in(copy(f"weights: {name}")))
        spoil(copy(f"manifest: {name}") / "manifest.json")
    for name, change in MANIFESTS.items():
        rewrite_manifest(copy(f"manifest {name}"), change)
    for name, make in {"polyglot": polyglot, "not a number": spoiled}.items():
        folder = copy(f"weights: {name}")
        put(folder, make(weights_in(folder)))


def lay_out_files(place):
    sound = GOLDEN / SOUND["network"]
    for name, content in CONTENTS.items():
        (place / name).write_bytes(content)
    for name, spoil in PLACES.items():
        shutil.copy(sound, place / name)
        spoil(place / name)
    (place / "polyglot").write_bytes(polyglot(sound))
    (place / "link to nothing").symlink_to("/nowhere")
    (place / "link to text").symlink_to("/etc/passwd")


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """What every loader did with every hostile file, in one process."""
    folder = tmp_path_factory.mktemp("hostile")
    for kind, sound in SOUND.items():
        (folder / kind).mkdir()
        (folder / "sound").mkdir(exist_ok=True)
        (shutil.copytree if kind in FOLDERS else shutil.copy)(GOLDEN / sound, folder / "sound" / kind)
        if kind in FOLDERS:
            (folder / kind / "other").write_text("another file")
            lay_out_folder(folder / kind, kind)
            (folder / kind / "other").unlink()
        else:
            lay_out_files(folder / kind)
    worker = Path(__file__).with_name("audit_worker.py")
    done = subprocess.run(
        [sys.executable, worker, folder], capture_output=True, text=True, timeout=300, cwd=folder / "sound"
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.fixture(scope="module")
def results(process):
    return process[1][0]


def test_there_are_many_for_every_loader(results):
    for kind in SOUND:
        assert sum(name.startswith(f"{kind}: ") for name in results) >= 30


def test_each_is_refused_with_an_error_of_ours_that_names_the_place(results):
    for name, found in results.items():
        assert re.match(r"(DamagedFile|DataNotFound|InvalidInput)Error: ", found["outcome"]), (name, found)
        kind, _, place = name.partition(": ")
        assert f"{kind}/{place}" in found["outcome"], (name, found)
        assert "\n" not in found["outcome"]
        assert len(found["outcome"]) < 1000


def test_nothing_is_run_imported_written_or_sent(process, results):
    assert {name: found["events"] for name, found in results.items() if found["events"]} == {}
    for sound in process[1][1]:
        assert (sound["outcome"], sound["events"]) == ("loaded", [])


def test_a_refusal_takes_less_than_twice_the_memory_of_the_file(results):
    largest = {name: found["memory"] for name, found in results.items()}
    for kind in FOLDERS:
        # Eight megabytes with the right digest are read and looked at, each other file is some kilobytes.
        assert LARGE < largest.pop(f"{kind}: weights: not a number") < 2 * LARGE
    assert max(largest.values()) < 2 * 2**20, sorted(largest.items(), key=lambda item: item[1])[-3:]


def test_the_watch_notices_what_it_watches_for(process):
    """A loader that unpickled would be seen, and the bomb would go off."""
    folder, (_, _, careless) = process
    assert {event for event, _ in careless["events"]} >= {"pickle.find_class", "os.mkdir"}
    assert (folder / "sound" / "exploded").exists()
