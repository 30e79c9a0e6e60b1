"""Files of torch are read, both layouts, and never run."""

import io
import pickle
import pickletools
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from momentalign.errors import DamagedFileError, DataNotFoundError
from momentalign.paper.torch_files import read_weights

LAYOUTS = pytest.mark.parametrize("zipped", [True, False], ids=["archive", "legacy"])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.pth"


def save(value, path, *, zipped):
    torch.save(value, path, _use_new_zipfile_serialization=zipped)


def refuse(path, words):
    with pytest.raises(DamagedFileError) as caught:
        read_weights(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "save the state dict alone, as safetensors" in str(caught.value)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(5, 2).double())


@LAYOUTS
def test_a_state_dict_comes_out_as_it_went_in(path, zipped):
    state = network().state_dict()
    save(state, path, zipped=zipped)
    arrays = read_weights(path)
    assert list(arrays) == list(state)
    for name, tensor in state.items():
        np.testing.assert_array_equal(arrays[name], tensor.numpy(), strict=True)


@LAYOUTS
def test_windows_parameters_and_every_kind_of_number(path, zipped):
    whole = torch.arange(24.0).reshape(4, 6)
    kinds = (torch.float16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    value = {
        "turned": whole.T,
        "window": whole[1:3, 2:5],
        "whole": whole,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "number": torch.tensor(3.5),
        "empty": torch.empty(0, 3),
        **{str(kind): torch.tensor([0, 1, 1]).to(kind) for kind in kinds},
    }
    save(value, path, zipped=zipped)
    arrays = read_weights(path)
    for name, tensor in value.items():
        np.testing.assert_array_equal(arrays[name], tensor.detach().numpy(), strict=True)
    arrays["window"][:] = 0.0
    assert arrays["whole"].sum() == whole.sum()


def test_a_state_dict_within_a_checkpoint_is_found(path):
    torch.save({"epoch": 3, "rate": 0.1, "names": ["a", "b"], "state_dict": {"bias": torch.ones(2)}}, path)
    assert list(read_weights(path)) == ["bias"]


def test_safetensors_are_read_whatever_their_name(path):
    save_file({"bias": torch.ones(2)}, path)
    assert read_weights(path)["bias"].tolist() == [1.0, 1.0]


def test_a_missing_file_is_named(path):
    with pytest.raises(DataNotFoundError, match=r"weights\.pth is not there; give a file of weights"):
        read_weights(path)


class Runs:
    """An object whose pickle calls a function when it is loaded."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def archive(pickled, *, members=(), method=zipfile.ZIP_STORED):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as file:
        for name, part in (("x/data.pkl", pickled), *members):
            file.writestr(name, part)
    return content.getvalue()


def legacy(pickled):
    header = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    return b"".join([*header, pickled, pickle.dumps([], 2)])


@pytest.mark.parametrize("wrap", [archive, legacy, lambda pickled: pickled], ids=["archive", "legacy", "bare"])
@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_would_run_a_command_is_refused_and_not_run(path, tmp_path, wrap, protocol):
    import os

    mark = tmp_path / "ran"
    pickled = pickle.dumps({"weight": Runs(os.system, f"touch {mark}")}, protocol)
    path.write_bytes(wrap(pickled))
    refuse(path, "system, which is not run here" if protocol < 4 else "which a dictionary of tensors does not need")
    assert not mark.exists()
    pickle.loads(pickled)  # noqa: S301  (the very bytes do run where they are loaded)
    assert mark.exists()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Runs(eval, "1"), "__builtin__.eval"),
        ({"a": Runs(__import__, "os")}, "__builtin__.__import__"),
        ({"a": Runs(getattr, {}, "pop")}, "__builtin__.getattr"),
        ({"a": {1, 2}}, "__builtin__.set"),
        ({"a": b"bytes"}, "_codecs.encode"),
        ({"a": 1.5}, "'a' is no tensor"),
        ({3: 1.5}, "3 is no tensor"),
        ({}, "dict, not a dictionary"),
        ([1, 2], "list, not a dictionary"),
        ("words", "str, not a dictionary"),
        (2**3000, "it asks for LONG4, which a dictionary of tensors does not need"),
    ],
)
def test_other_values_are_refused_by_name(path, value, words):
    path.write_bytes(archive(pickle.dumps(value, 2)))
    refuse(path, words)


def test_a_whole_module_is_refused(path):
    torch.save(network(), path)
    refuse(path, "torch.nn.modules.container.Sequential")


# Pickles in the words of the machine: a tensor of 2 x 3 numbers in a storage of 6, to be forged part by part.
def pickled_tensor(
    *, kind="storage", dtype="torch\nFloatStorage", length=6, offset=0, shape=(2, 3), strides=(3, 1), view=""
):
    numbers = "".join(f"I{number}\n" for number in shape), "".join(f"I{number}\n" for number in strides)
    words = (
        "}(Vw\n"
        f"ctorch._utils\n_rebuild_tensor_v2\n((V{kind}\nc{dtype}\nV0\nVcpu\nI{length}\n{view}tQI{offset}\n"
        f"({numbers[0]}t({numbers[1]}t\x89ccollections\nOrderedDict\n)RtRu."
    )
    # Text instructions as the binary ones that torch writes.
    content = words.encode("latin1")
    return b"\x80\x02" + _binary(content)


def _binary(content):
    out = []
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "UNICODE":
            out.append(b"X" + len(argument).to_bytes(4, "little") + argument.encode())
        elif opcode.name == "INT":
            out.append(b"J" + int(argument).to_bytes(4, "little", signed=True))
        elif opcode.name == "GLOBAL":
            out.append(b"c" + argument.replace(" ", "\n").encode() + b"\n")
        else:
            out.append(opcode.code.encode("latin1"))
    return b"".join(out)


STORAGE = np.arange(6, dtype="<f4").tobytes()
STORAGE_WITHOUT_LENGTH = _binary(b"(Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nNtQ.")


def test_the_forgers_tensor_is_read(path):
    path.write_bytes(archive(pickled_tensor(), members=[("x/data/0", STORAGE)]))
    assert read_weights(path)["w"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        ({"shape": (2, 4)}, "reaches beyond its storage"),
        ({"offset": 1}, "reaches beyond its storage"),
        ({"offset": -1}, "reaches beyond its storage"),
        ({"strides": (4, 1)}, "reaches beyond its storage"),
        ({"strides": (-3, 1)}, "reaches beyond its storage"),
        ({"shape": (2_000_000_000, 3), "strides": (0, 1)}, "reaches beyond its storage"),
        ({"shape": (-2, -3)}, "reaches beyond its storage"),
        ({"shape": (6,)}, "argument"),
        ({"length": 7}, "has 24 bytes for 7 numbers"),
        ({"length": -6}, "has 24 bytes for -6 numbers"),
        ({"kind": "module"}, "a kind that is not known"),
        ({"dtype": "torch\nBFloat16Storage"}, "torch.BFloat16Storage"),
        ({"dtype": "collections\nOrderedDict"}, "a kind that is not known"),
        ({"view": "I1\n"}, "a kind that is not known"),
    ],
)
def test_a_forged_tensor_is_refused(path, forged, words):
    path.write_bytes(archive(pickled_tensor(**forged), members=[("x/data/0", STORAGE)]))
    refuse(path, words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"nonsense that is no file of weights", "neither a file of torch nor of safetensors"),
        (b"", "neither a file of torch nor of safetensors"),
        (archive(pickled_tensor()), "x/data/0"),
        (archive(pickled_tensor(), members=[("x/data/0", STORAGE)], method=zipfile.ZIP_DEFLATED), "is compressed"),
        (archive(pickled_tensor(), members=[("x/data/0", STORAGE), ("x/byteorder", "big")]), "not little-endian"),
        (archive(b"}."), "not a dictionary of tensors"),
        (archive(b""), "pickle exhausted"),
        (archive(b"t."), "did not begin"),
        (archive(b"R."), "takes more than it has laid down"),
        (archive(b"(N\x85\x85\x85."), "cannot be read"),
        (archive(b"NN\x86NNs."), "no dictionary"),
        (archive(b"N(Ne."), "no list"),
        (archive(b"NNa."), "no list"),
        (archive(b"}}(Nu."), "cannot be read"),
        (archive(b"NNb."), "no dictionary"),
        (archive(b"N)R."), "it calls None"),
        (archive(b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))tR."), "in a way that is not known"),
        (archive(b"ccollections\nOrderedDict\n(NtR."), "in a way that is not known"),
        (archive(b"h\x05."), "cannot be read"),
        (archive(STORAGE_WITHOUT_LENGTH), "None stands where a whole number should"),
        (archive(b"}.").replace(b"data.pkl", b"date.pkl"), "holds no data.pkl"),
        (b"PK\x03\x04 not an archive", "cannot be read"),
        (pickle.dumps(1, 2) + pickle.dumps(2, 2), "does not begin as a file of torch"),
        (pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2), "not little-endian"),
    ],
)
def test_damaged_and_foreign_files_are_refused(path, content, words):
    path.write_bytes(content)
    refuse(path, words)


@LAYOUTS
def test_every_truncation_is_refused(path, zipped):
    save({"bias": torch.arange(3.0)}, path, zipped=zipped)
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        refuse(path, "cannot be read")


def test_a_storage_of_another_length_than_its_tensor_is_refused(path):
    save({"bias": torch.arange(3.0)}, path, zipped=False)
    content = path.read_bytes()
    length = (3).to_bytes(8, "little") + np.arange(3, dtype="<f4").tobytes()
    assert content.endswith(length)
    path.write_bytes(content.replace(length, (2).to_bytes(8, "little") + length[8:]))
    refuse(path, "another length than its tensor says")
