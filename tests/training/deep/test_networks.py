"""Networks as others write them: several inputs, structured outputs, sequences, compiled; and both Lightnings."""

import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from momentalign.errors import MissingExtraError
from momentalign.training.deep.adapt import adapt
from momentalign.training.deep.lightning import first_imported


@dataclass
class Output:
    """As ``transformers`` gives it."""

    logits: Tensor
    attention: Tensor | None = None


def structured(form, logits, hidden=None):
    forms = {"dataclass": Output(logits), "tuple": (logits, hidden), "mapping": OrderedDict(logits=logits)}
    return forms[form]


class Body(nn.Module):
    """What ``transformers`` call a model, without a head."""

    def __init__(self, form):
        super().__init__()
        self.form, self.embed = form, nn.Embedding(40, 16)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 1, enable_nested_tensor=False
        )

    def forward(self, ids, mask):
        return structured(self.form, self.encoder(self.embed(ids), src_key_padding_mask=mask == 0))


class Words(nn.Module):
    """A small transformer encoder with the interface of ``transformers``: keywords in, a structure out."""

    def __init__(self, form):
        super().__init__()
        self.form, self.body = form, Body(form)
        self.pooler = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
        self.classifier = nn.Linear(16, 2)

    def forward(self, input_ids, attention_mask=None):
        found = self.body(input_ids, attention_mask)
        hidden = found.logits if self.form == "dataclass" else next(iter(getattr(found, "values", lambda: found)()))
        return structured(self.form, self.classifier(self.pooler(hidden[:, 0])), hidden)


def sentences(*, shifted):
    """A word says the class, one of ten each; sentences of the target are shorter, and padded."""
    drawn = torch.Generator().manual_seed(int(shifted))
    labels = torch.arange(120) % 2
    ids = torch.randint(20, 40, (120, 6), generator=drawn)
    ids[:, 1] = 10 * labels + torch.randint(0, 10, (120,), generator=drawn)
    mask = torch.ones_like(ids)
    mask[:, 5] = int(not shifted)
    return ids, mask, labels


class Dictionaries(torch.utils.data.Dataset):
    def __init__(self, *, shifted):
        self.ids, self.mask, self.labels = sentences(shifted=shifted)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, row):
        return {"input_ids": self.ids[row], "attention_mask": self.mask[row]}, self.labels[row]


@pytest.mark.parametrize(
    ("form", "layer", "settings"),
    [
        ("dataclass", "body", {"interval": (-3.0, 3.0)}),
        ("tuple", "body", {"discrepancy": "coral"}),
        ("mapping", "body", {"discrepancy": "mmd"}),
        ("mapping", "pooler", {"discrepancy": "dann", "sharpen": 0.3}),
    ],
)
def test_transformers_train_on_dictionaries(form, layer, settings):
    torch.manual_seed(0)
    model, history = Words(form), []
    source, target = (
        DataLoader(Dictionaries(shifted=shifted), batch_size=40, shuffle=True) for shifted in (False, True)
    )
    adapted = adapt(
        model, layer, source, target, max_epochs=15, learning_rate=1e-2, device="cpu", random_state=0, weight=0.05,
        source_validation=source, target_validation=target, on_epoch=history.append, **settings,
    )  # fmt: skip
    assert type(adapted) is Words
    assert history[-1]["validation_accuracy"] > 0.9
    assert "target_accuracy" in history[-1]


@pytest.mark.parametrize("kind", ["Bert", "DistilBert"])
def test_encoders_of_transformers(kind):
    transformers = pytest.importorskip("transformers")
    sizes = {
        "Bert": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
        "DistilBert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32},
    }
    config = getattr(transformers, f"{kind}Config")(vocab_size=40, max_position_embeddings=8, **sizes[kind])
    torch.manual_seed(0)
    model, history = getattr(transformers, f"{kind}ForSequenceClassification")(config), []
    source, target = (DataLoader(Dictionaries(shifted=shifted), batch_size=40) for shifted in (False, True))
    adapted = adapt(model, kind.lower(), source, target, interval=(-3.0, 3.0), max_epochs=8, learning_rate=1e-2,
                    weight=0.01, device="cpu", random_state=0, on_epoch=history.append)  # fmt: skip
    assert type(adapted) is type(model)
    assert history[-1]["source_loss"] < history[0]["source_loss"]


def test_resnets_of_torchvision():
    models = pytest.importorskip("torchvision.models")
    images, labels, history = torch.rand(16, 3, 32, 32), torch.arange(16) % 4, []
    adapted = adapt(models.resnet18(num_classes=4), "avgpool", [(images, labels)], [0.5 * images + 0.3], max_epochs=2,
                    interval=(0.0, 3.0), device="cpu", random_state=0, on_epoch=history.append)  # fmt: skip
    assert type(adapted) is models.ResNet
    assert history[-1]["source_loss"] < history[0]["source_loss"]


def test_a_dictionary_may_be_one_input():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.top = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()), nn.Linear(3, 2)

        def forward(self, batch):
            return self.top(self.hidden(batch["rows"]))

    rows, labels = torch.randn(8, 4), torch.arange(8) % 2
    adapted = adapt(Whole(), "hidden", [({"rows": rows}, labels)], [{"rows": rows + 1}], max_epochs=1, device="cpu")
    assert adapted({"rows": rows}).shape == (8, 2)


class Block(nn.Module):
    """Two convolutions around a shortcut, in the names of torchvision."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, images):
        maps = self.relu(self.bn1(self.conv1(images)))
        return self.relu(self.bn2(self.conv2(maps)) + self.downsample(images))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2 = Block(1, 16, 1), Block(16, 32, 2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(32, 10)

    def forward(self, images):
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(images))), 1))


def test_residual_networks_align_what_is_below_or_at_their_top(digits):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ResNet()

    def accuracy(layer, **settings):
        loaders = digits.source_loader(), digits.target_loader()
        settings = {"max_epochs": 6, "learning_rate": 5e-3, "device": "cpu", "random_state": 0, **settings}
        adapted = adapt(model, layer, *loaders, **settings)
        assert type(adapted) is ResNet
        return digits.target_accuracy(adapted)

    plain = accuracy("fc", discrepancy=None)
    for layer in ("avgpool", "fc"):
        assert accuracy(layer, interval=(0.0, 3.0)) > plain + 0.1


def windows(*, shifted):
    """Two kinds of movement, a slow and a fast wave; the other sensor has an offset and another gain."""
    time, labels = torch.arange(32) / 32, torch.arange(200) % 2
    drawn = torch.Generator().manual_seed(int(shifted))
    phase = torch.rand(200, 1, generator=drawn)
    waves = torch.sin(6.28 * ((2 + 3 * labels[:, None]) * time + phase)) + 0.3 * torch.randn(200, 32, generator=drawn)
    return TensorDataset((0.6 * waves + 0.7 if shifted else waves)[:, None], labels)


def test_convolutions_on_windows_of_a_sensor():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 16, 7), nn.ReLU(), nn.Conv1d(16, 16, 7), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 2),
    )  # fmt: skip
    source, target = (DataLoader(windows(shifted=shifted), batch_size=100) for shifted in (False, True))
    found = {}
    for discrepancy in (None, "cmd"):
        history = []
        adapt(model, "7", source, target, discrepancy=discrepancy, max_epochs=40, learning_rate=5e-3, device="cpu",
              random_state=0, target_validation=target, on_epoch=history.append)  # fmt: skip
        found[discrepancy] = history[-1]["target_accuracy"]
    assert found["cmd"] > 0.95 > found[None] + 0.02


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo's look at what a hook is given
@pytest.mark.skipif(sys.platform == "win32", reason="dynamo knows no Windows")
def test_compiled_networks_train_to_the_same_weights(task, small):
    def trained(model):
        loaders = task.source_loader(), task.target_loader()
        settings = {"sharpen": 0.5, "max_epochs": 2, "source_validation": task.source_loader(), "random_state": 0}
        return adapt(model, "1", *loaders, device="cpu", **settings)

    plain, compiled = trained(small), torch.compile(small, backend="aot_eager")
    for used in (False, True):
        if used:
            compiled(task.rows)
        adapted = trained(compiled)
        assert type(adapted) is type(compiled)
        for found, expected in zip(adapted.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(found, expected)
        torch.testing.assert_close(adapted(task.rows), adapted._orig_mod(task.rows))


PROGRAM = """
import sys, warnings
warnings.simplefilter("ignore")
import lightning as L
import torch
import momentalign as ma
from torch import nn
rows, labels = torch.rand(40, 4), torch.arange(40) % 2
network = nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 2))
module = ma.DeepAdaptation(network, "1", sharpen=1.0)
trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False,
                    enable_model_summary=False, default_root_dir=sys.argv[1])
trainer.fit(module, ma.PairedLoader([(rows, labels)], [rows + 1.0]))
ma.adapt(network, "1", [(rows, labels)], [rows + 1.0], max_epochs=1, checkpoint=sys.argv[1] + "/run", device="cpu")
assert "pytorch_lightning" not in sys.modules
print(len(module.history), isinstance(module, L.LightningModule))
"""


def test_trainers_of_the_other_package_take_the_module(tmp_path):
    pytest.importorskip("lightning")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["2", "True"]


def test_of_two_packages_that_is_taken_which_was_imported_first(monkeypatch):
    for name in ("colorsys", "this_is_not_installed", "wave"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert first_imported("this_is_not_installed", "colorsys").__name__ == "colorsys"
    assert first_imported("wave", "colorsys").__name__ == "colorsys"
    monkeypatch.delitem(sys.modules, "colorsys")
    assert first_imported("wave", "colorsys").__name__ == "wave"
    with pytest.raises(MissingExtraError, match="Networks are adapted by Lightning"):
        first_imported("this_is_not_installed")
