import hashlib
import json
import logging
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.torch
import torch
from torch import nn

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError, InvalidTypeError
from momentalign.training.deep.export import export_onnx, load_weights, save_weights


def convolutional(channels=4):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(channels * 64, 10),
    )


@pytest.fixture
def trained():
    """A network whose batch norm has seen rows, in train mode."""
    torch.manual_seed(0)
    network = convolutional()
    network(2.0 + 3.0 * torch.randn(20, 1, 8, 8))
    return network


@pytest.fixture
def saved(trained, tmp_path):
    path = tmp_path / "network.safetensors"
    save_weights(trained, path)
    return path


class Wrapped(nn.Module):
    """Any function of rows as a network."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, rows):
        return self.function(rows)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, rows):
        return self.head(self.cells(rows)[0][:, -1])


def test_weights_come_back_to_the_bit(trained, saved):
    other = convolutional()
    load_weights(other, saved)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in trained.state_dict().items())
    plain = safetensors.torch.load_file(saved)
    assert plain.keys() == trained.state_dict().keys()


def test_every_type_and_tied_weights_are_kept(tmp_path):
    def build():
        network = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)).to(torch.bfloat16)
        network[1].weight = network[0].weight
        network.register_buffer("mask", torch.tensor([[-torch.inf, 0.0]], dtype=torch.float64))
        network.register_buffer("count", torch.tensor(3))
        network.register_buffer("empty", torch.zeros(0, 2))
        return network

    first, second = build(), build()
    save_weights(first, tmp_path / "tied")
    load_weights(second, tmp_path / "tied")
    assert second[1].weight is second[0].weight
    assert torch.equal(second[0].weight, first[0].weight)
    assert second.mask.tolist() == [[-torch.inf, 0.0]]


def test_every_flipped_bit_is_found_or_means_nothing(trained, saved):
    """A bit may change what nobody reads, never what is loaded."""
    whole = saved.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    rng = np.random.default_rng(0)
    found = 0
    for place in [*rng.integers(0, header, 60), *rng.integers(header, len(whole), 20)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(damaged)
        other = convolutional()
        before = {name: value.clone() for name, value in other.state_dict().items()}
        try:
            load_weights(other, saved)
        except DamagedFileError:
            found += 1
            expected = before
        else:
            expected = trained.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in other.state_dict().items())
    assert found >= 75


def test_files_that_are_not_ours(tmp_path):
    path = tmp_path / "weights"
    with pytest.raises(DataNotFoundError, match=f"there is no file {path}"):
        load_weights(nn.Linear(2, 2), path)
    path.write_bytes(b"something else")
    with pytest.raises(DamagedFileError, match="is not a safetensors file"):
        load_weights(nn.Linear(2, 2), path)
    safetensors.torch.save_file(nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(DamagedFileError, match=r"has no digest, .* safetensors\.torch\.load_file"):
        load_weights(nn.Linear(2, 2), path)


def test_an_exchange_of_names_is_found(tmp_path):
    """Same bytes in the same order, under the other's name."""
    network = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
    path = tmp_path / "weights"
    save_weights(network, path)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["0.weight"], header["1.weight"] = header["1.weight"], header["0.weight"]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    assert safetensors.torch.load_file(path).keys() == {"0.weight", "1.weight"}
    with pytest.raises(DamagedFileError, match="do not match its digest"):
        load_weights(network, path)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: convolutional()[:-1], "'5.bias' in .* is not in the model"),
        (lambda: nn.Sequential(*convolutional(), nn.Linear(10, 2)), "'6.weight' of the model is not in"),
        (
            lambda: convolutional(5),
            r"'0.weight' is float32 of shape \(4, 1, 3, 3\) in .*, in the model float32 of shape \(5, 1, 3, 3\)",
        ),
        (lambda: convolutional().double(), r"'0.weight' is float32 of .*, in the model float64 of"),
    ],
)
def test_another_structure_is_refused_by_the_parameters_name(saved, build, message):
    other = build()
    before = [value.clone() for value in other.state_dict().values()]
    with pytest.raises(InvalidInputError, match=message):
        load_weights(other, saved)
    assert all(torch.equal(*pair) for pair in zip(before, other.state_dict().values(), strict=True))


def test_a_state_that_is_no_tensor_is_refused(tmp_path):
    class Odd(nn.Linear):
        def get_extra_state(self):
            return {"anything": 1}

    with pytest.raises(InvalidTypeError, match="'_extra_state' in the model's state is dict"):
        save_weights(Odd(2, 2), tmp_path / "odd")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(trained, tmp_path):
    with pytest.raises(InvalidInputError, match=r"cannot be written \(No such file or directory\)"):
        save_weights(trained, tmp_path / "none" / "network.safetensors")


def test_onnx_gives_what_the_network_gives_for_every_number_of_rows(trained, tmp_path):
    path = tmp_path / "network.onnx"
    before = hashlib.sha256(safetensors.torch.save(trained.state_dict())).hexdigest()
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    export_onnx(trained, torch.randn(1, 1, 8, 8), path)
    assert trained.training
    assert logger.level == level
    assert hashlib.sha256(safetensors.torch.save(trained.state_dict())).hexdigest() == before
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    trained.eval()
    for rows in (1, 2, 7, 100):
        inputs = torch.randn(rows, 1, 8, 8)
        (outputs,) = session.run(["outputs"], {"inputs": inputs.numpy()})
        with torch.no_grad():
            torch.testing.assert_close(torch.tensor(outputs), trained(inputs), rtol=1e-4, atol=1e-5)
    assert list(tmp_path.iterdir()) == [path]
    # The files of whoever exported it are nobody's business.
    assert b".py" not in path.read_bytes()


class Branching(nn.Module):
    def forward(self, rows):
        return torch.cond(rows.sum() > 0, lambda values: values.sin(), lambda values: values.cos(), (rows,))


@pytest.mark.parametrize("kind", [Recurrent, Branching])
def test_loops_and_branches_leave_as_onnx_too(tmp_path, kind):
    torch.manual_seed(0)
    path = tmp_path / "network.onnx"
    export_onnx(kind(), torch.randn(4, 6, 3), path)
    assert b".py" not in path.read_bytes()


class Inside(nn.Module):
    """Numbers of 32 bits outside, shorter ones inside."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(4, 2).bfloat16()

    def forward(self, rows):
        return self.part(rows.bfloat16()).float()


ROWS = torch.randn(3, 4)
REFUSED = {
    "one number of rows": (
        Wrapped(lambda rows: rows.unsqueeze(2).squeeze(0) if len(rows) == 1 else rows.unsqueeze(2)), ROWS[:1],
        r"is not the same in ONNX: for 2 rows outputs differ by inf",
    ),
    "numpy inside": (
        Wrapped(lambda rows: torch.tensor(rows.numpy() * 2)), ROWS,
        r"model Wrapped has no form in ONNX .* \(RuntimeError: \.numpy\(\)",
    ),
    "random": (
        Wrapped(lambda rows: rows + torch.rand_like(rows)), ROWS,
        "model Wrapped is not the same in ONNX: for 1 rows outputs differ by",
    ),
    "random in half precision": (
        Wrapped(lambda rows: rows + torch.rand_like(rows)), ROWS.half(),
        r"is not the same in ONNX: .* or works in half precision\.$",
    ),
    "bfloat16": (
        nn.Linear(4, 2).bfloat16(), ROWS.bfloat16(), r"example is bfloat16 of shape \(3, 4\), .* give model\.float\(\)",
    ),
    "bfloat16 outputs": (
        Wrapped(lambda rows: rows.bfloat16()), ROWS,
        r"the output of model is bfloat16 of shape \(3, 4\), .* give model\.float\(\)",
    ),
    "bfloat16 inside": (
        Inside(), ROWS, r"model Inside cannot be checked in onnxruntime \(NotImplemented: .*to float32\.$",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_the_same_in_onnx_is_refused_and_the_old_file_stays(tmp_path, kind):
    network, example, message = REFUSED[kind]
    path = tmp_path / "network.onnx"
    path.write_bytes(b"old")
    with pytest.raises(InvalidInputError, match=message):
        export_onnx(network, example, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_example_or_no_output_is_refused(tmp_path):
    for example in ("rows", torch.tensor(1.0), torch.zeros(0, 2)):
        with pytest.raises(InvalidTypeError, match="example must be a tensor with at least one row"):
            export_onnx(nn.Linear(2, 2), example, tmp_path / "network.onnx")
    with pytest.raises(InvalidTypeError, match="model must return one tensor, got tuple"):
        export_onnx(Wrapped(lambda rows: (rows, rows)), torch.randn(3, 4), tmp_path / "network.onnx")


def test_what_is_no_network_is_refused(tmp_path):
    path = tmp_path / "network"
    save_weights(nn.Linear(2, 2), path)
    before = path.read_bytes()
    for call in (
        lambda: export_onnx(3, torch.zeros(1, 2), path),
        lambda: save_weights(3, path),
        lambda: load_weights(3, path),
    ):
        with pytest.raises(InvalidTypeError, match=r"^model must be a torch\.nn\.Module, got 3\.$"):
            call()
    assert path.read_bytes() == before


def test_half_precision_is_compared_as_precisely_as_it_is(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "network.onnx"
    network = nn.Sequential(nn.Linear(40, 80), nn.Sigmoid(), nn.Linear(80, 20)).half()
    inputs = 5.0 * torch.randn(30, 40).half()
    export_onnx(network, inputs, path)
    (outputs,) = onnxruntime.InferenceSession(path).run(["outputs"], {"inputs": inputs.numpy()})
    assert outputs.dtype == np.float16
    np.testing.assert_allclose(outputs, network(inputs).detach().numpy(), rtol=0.0, atol=0.01)


def test_answers_leave_as_onnx_too(tmp_path):
    path, inputs = tmp_path / "network.onnx", torch.randn(5, 3)
    export_onnx(Wrapped(lambda rows: rows > 0), inputs, path)
    (outputs,) = onnxruntime.InferenceSession(path).run(["outputs"], {"inputs": inputs.numpy()})
    assert outputs.dtype == np.bool_
    assert np.array_equal(outputs, (inputs > 0).numpy())


@pytest.mark.parametrize("name", ["onnx", "onnxscript", "onnxruntime"])
def test_a_library_that_is_not_installed(monkeypatch, tmp_path, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=rf'ONNX files need {name}: pip install "\.\[onnx\]" in a checkout'):
        export_onnx(nn.Linear(2, 2), torch.zeros(1, 2), tmp_path / "network.onnx")
    assert list(tmp_path.iterdir()) == []
