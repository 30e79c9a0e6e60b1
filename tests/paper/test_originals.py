"""Originals from a server on this machine: small sets of each kind, hostile archives, and the real ones rebuilt."""

import gzip
import hashlib
import io
import itertools
import json
import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from scipy import sparse

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.paper import originals
from momentalign.paper.catalogue import DATA_SETS, Original, find_data_set, find_file
from momentalign.paper.digits_data import DIGESTS, load_mnist, load_mnist_m
from momentalign.paper.office import load_pictures
from momentalign.paper.originals import get, look, save_arrays, tar_members
from momentalign.paper.problems import load_artificial, load_reviews


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def publish(site, data_set, contents):
    """Serve contents under the paths of a set's originals."""
    for original, content in zip(data_set.originals, contents, strict=True):
        site.files[urlsplit(original.url).path] = content


def npy(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def tar(files, *, links=()):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, kind, goal in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, goal
            archive.addfile(member)
    return content.getvalue()


def picture(kind, colour=0):
    content = io.BytesIO()
    Image.new("RGB", (32, 32), (colour, 2, 3)).save(content, kind)
    return content.getvalue()


def rebuilt(name, arrays):
    """A set whose file is made of these arrays."""
    known = find_data_set(name)
    digest = sha256(save_arrays(arrays))
    return replace(known, files=(replace(known.files[0], sha256="0" * 64, rebuilt_sha256=digest),))


@pytest.fixture
def artificial(site):
    rng = np.random.default_rng(0)
    arrays = {name: rng.random((3, 2)) for name in ("x_source", "x_target", "y_source", "y_target")}
    data_set = rebuilt("artificial", arrays)
    publish(site, data_set, [npy(array) for array in arrays.values()])
    return data_set


@pytest.fixture
def mnist(site, monkeypatch):
    images = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes(784)
    contents = [gzip.compress(part) for part in (images, bytes([0, 0, 8, 1, 0, 0, 0, 1, 7])) * 2]
    known = find_data_set("mnist")
    urls = [original.url for original in known.originals]
    data_set = replace(
        known,
        originals=tuple(Original(url, sha256(content)) for url, content in zip(urls, contents, strict=True)),
    )
    publish(site, data_set, contents)
    for original in data_set.originals:
        monkeypatch.setitem(DIGESTS, original.name, original.sha256)
    return data_set


OFFICE = {
    f"top/data/Office31/{domain}/images/{name}/frame_0001.jpg": picture("JPEG")
    for domain in ("amazon", "dslr", "webcam")
    for name in ("bike", "mug")
}


@pytest.fixture
def office(site):
    known = find_data_set("office-31")
    data_set = replace(known, counts=tuple((pattern, 2) for pattern, _ in known.counts))
    publish(site, data_set, [tar({**OFFICE, "top/README.md": b"words"})])
    return data_set


def mnist_m_files(labels=(b"7", b"2")):
    files = {}
    for split in ("train", "test"):
        lines = [f"{row:08d}.png ".encode() + label for row, label in enumerate(labels)]
        files[f"top/mnist_m/mnist_m_{split}_labels.txt"] = b"\n".join(lines) + b"\n"
        for row in range(len(labels)):
            files[f"top/mnist_m/mnist_m_{split}/{row:08d}.png"] = picture("PNG", colour=row)
    return files


@pytest.fixture
def mnist_m(site):
    known = find_data_set("mnist-m")
    data_set = replace(
        known,
        counts=tuple((pattern, 2) for pattern, _ in known.counts),
        labels=tuple((name, sha256(bytes([7, 2]))) for name, _ in known.labels),
    )
    publish(site, data_set, [tar(mnist_m_files())])
    return data_set


def test_every_file_belongs_to_one_set_and_every_address_is_pinned():
    assert len({data_set.name for data_set in DATA_SETS}) == len(DATA_SETS)
    for data_set in DATA_SETS:
        for original in data_set.originals:
            by_commit = re.search(r"/[0-9a-f]{40}(/|$)", original.url) is not None
            by_digest = re.fullmatch(r"[0-9a-f]{64}", original.sha256 or "") is not None
            assert by_commit or by_digest
            assert original.url.startswith("https://") or by_digest
        checked = all(file.rebuilt_sha256 for file in data_set.files) or data_set.kept
        assert bool(checked) == bool(data_set.originals)


def test_arrays_become_the_file_that_is_read_once_also_in_place_of_a_damaged_one(site, tmp_path, artificial):
    folder, steps = tmp_path / "new", []
    found = get(artificial, folder, mirror=site.address, progress=lambda *step: steps.append(step))
    assert found == ("right", (folder / "artificial.npz",))
    assert names(folder) == ["artificial.npz", "artificial.origin.json"]
    assert [name for name, _, _ in steps] == ["x_s.npy", "x_t.npy", "y_s.npy", "y_t.npy"]
    seen = json.loads((folder / "artificial.origin.json").read_bytes())["originals"]
    served = [site.files[urlsplit(original.url).path] for original in artificial.originals]
    assert [(entry["sha256"], entry["bytes"]) for entry in seen] == [(sha256(part), len(part)) for part in served]
    assert not any(entry["checksum_known"] for entry in seen)
    assert seen[0]["url"] == site.address + urlsplit(artificial.originals[0].url).path
    asked = len(site.asked)
    assert get(artificial, folder, mirror=site.address).state == "right"
    assert len(site.asked) == asked
    (folder / "artificial.npz").write_bytes(b"damaged")
    assert look(artificial, folder).state == "damaged"
    assert get(artificial, folder, mirror=site.address).state == "right"


class Trap:
    """An object whose pickle makes a folder when it is loaded."""

    def __reduce__(self):
        return (os.mkdir, ("sprung",))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (npy(np.array([Trap()], dtype=object)), r"x_s.npy is not an array of numbers"),
        (npy(np.zeros((3, 2))), r"artificial.npz made of the downloads is not what it should be"),
        (b"no array", r"x_s.npy is not an array of numbers"),
        (b"", r"x_s.npy is not an array of numbers"),
        (b"PK\x05\x06" + bytes(18), r"x_s.npy is an archive, expected one array"),
    ],
)
def test_other_arrays_are_refused_and_removed(site, tmp_path, artificial, monkeypatch, content, words):
    monkeypatch.chdir(tmp_path)
    site.files[urlsplit(artificial.originals[0].url).path] = content
    with pytest.raises(
        DamagedFileError, match=words + r".* What was downloaded for artificial is removed; get it again."
    ):
        get(artificial, tmp_path, mirror=site.address)
    assert [path for path in tmp_path.rglob("*") if path.is_file() or path.name == "sprung"] == []


def test_a_stopped_set_goes_on_with_the_file_it_was_at(site, tmp_path, artificial):
    path = urlsplit(artificial.originals[2].url).path
    content = site.files.pop(path)
    with pytest.raises(DataNotFoundError, match=r"y_s.npy answered 404"):
        get(artificial, tmp_path, mirror=site.address)
    site.files[path] = content
    site.asked.clear()
    assert get(artificial, tmp_path, mirror=site.address).state == "right"
    assert [Path(asked).name for asked, _, _ in site.asked] == ["y_s.npy", "y_t.npy"]


def test_the_downloads_of_other_sets_are_left_alone(site, tmp_path, artificial):
    part = tmp_path / "downloads" / "reviews" / "books_train.svmlight.part"
    part.parent.mkdir(parents=True)
    part.touch()
    get(artificial, tmp_path, mirror=site.address)
    assert [path for path in (tmp_path / "downloads").rglob("*") if path.is_file()] == [part]


def test_originals_with_published_digests_stay_as_they_are(site, tmp_path, mnist):
    found = get(mnist, tmp_path, mirror=site.address)
    assert found == ("right", tuple(tmp_path / name for name in mnist.kept))
    assert load_mnist("test", tmp_path).labels.tolist() == [7]
    assert names(tmp_path) == sorted([*mnist.kept, "mnist.origin.json"])
    (tmp_path / mnist.kept[0]).unlink()
    assert look(mnist, tmp_path) == ("in part", found.paths[1:])
    assert get(mnist, tmp_path, mirror=site.address) == found
    assert len(site.asked) == 5


def test_a_published_digest_is_compared(site, tmp_path, mnist):
    site.files[urlsplit(mnist.originals[1].url).path] += b"\0"
    with pytest.raises(
        DamagedFileError, match=r"train-labels-idx1-ubyte.gz is not the file it should be .* was removed"
    ):
        get(mnist, tmp_path, mirror=site.address)
    assert mnist.kept[1] not in names(tmp_path)


def test_what_the_user_has_under_a_name_is_neither_used_nor_removed(site, tmp_path, mnist):
    own = tmp_path / mnist.kept[1]
    own.write_bytes(b"my own")
    with pytest.raises(InvalidInputError, match=rf"^{own} is there and is not what it should be; move it away"):
        get(mnist, tmp_path, mirror=site.address)
    assert own.read_bytes() == b"my own"
    assert site.asked == []
    own.rename(tmp_path / "mnist.npz")
    assert look(mnist, tmp_path).state == "damaged"
    with pytest.raises(InvalidInputError, match=r"mnist.npz is there and is not what it should be"):
        get(mnist, tmp_path, mirror=site.address)


def test_pictures_are_taken_out_counted_and_read(site, tmp_path, office):
    found = get(office, tmp_path, mirror=site.address)
    assert found == ("counted", tuple(tmp_path / name for name in ("amazon", "dslr", "webcam")))
    pictures = load_pictures(tmp_path)
    assert (len(pictures.labels), pictures.class_names) == (6, ("bike", "mug"))
    assert names(tmp_path) == ["amazon", "dslr", "office-31.origin.json", "webcam"]
    (tmp_path / "amazon" / "images" / ".hidden").touch()
    assert look(office, tmp_path).state == "counted"
    (tmp_path / "amazon" / "images" / "mug" / "frame_0001.jpg").unlink()
    assert look(office, tmp_path).state == "damaged"
    with pytest.raises(InvalidInputError, match=r"amazon is there and is not what it should be"):
        get(office, tmp_path, mirror=site.address)


def test_digits_over_photographs_are_read_with_their_labels(site, tmp_path, mnist_m):
    assert get(mnist_m, tmp_path, mirror=site.address) == ("counted", (tmp_path / "mnist_m",))
    digits = load_mnist_m("train", tmp_path)
    assert digits.labels.tolist() == [7, 2]
    assert digits.images[:, 0, 0, 0].tolist() == [0, 1]


@pytest.mark.parametrize("labels", [(b"7", b"3"), (b"7", b"22"), (b"7", b""), None])
def test_other_labels_and_none_are_refused(site, tmp_path, mnist_m, labels):
    files = mnist_m_files(labels or (b"7", b"2"))
    if labels is None:
        del files["top/mnist_m/mnist_m_train_labels.txt"]
    publish(site, mnist_m, [tar(files)])
    with pytest.raises(DamagedFileError, match=r"mnist_m_train_labels.txt with other labels than those of MNIST"):
        get(mnist_m, tmp_path, mirror=site.address)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tar(dict(list(OFFICE.items())[1:])), r"holds 1 of amazon/images/\*/\*.jpg, expected 2"),
        (
            tar({**OFFICE, next(iter(OFFICE)): b"version https://git-lfs"}),
            r"amazon/images/bike/frame_0001.jpg, which is no",
        ),
        (tar(OFFICE)[:-200], r"not a whole .tar.gz file"),
        (b"<html>", r"not a whole .tar.gz file"),
        (b"", r"not a whole .tar.gz file"),
        (gzip.compress(b"words", mtime=0), r"not a whole .tar.gz file"),
        (tar(OFFICE)[:300] + bytes(100) + tar(OFFICE)[400:], r"not a whole .tar.gz file|holds \d of"),
    ],
)
def test_other_archives_are_refused_and_removed(site, tmp_path, office, content, words):
    publish(site, office, [content])
    with pytest.raises(DamagedFileError, match=words):
        get(office, tmp_path, mirror=site.address)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert names(tmp_path) == ["downloads"]


def test_an_archive_writes_only_where_it_may(site, tmp_path, office):
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(b"\xff\xd8 of this machine")
    inside = "top/data/Office31/amazon/images/bike"
    hostile = {
        f"top/data/Office31/amazon/images/../../../../{tmp_path.name}.jpg": picture("JPEG"),
        str(tmp_path / "absolute.jpg"): picture("JPEG"),
        f"{inside}/../../../../up.jpg": picture("JPEG"),
        f"{inside}/a.jpg/b.jpg": picture("JPEG"),
    }
    links = [
        (f"{inside}/symbolic.jpg", tarfile.SYMTYPE, str(secret)),
        (f"{inside}/hard.jpg", tarfile.LNKTYPE, f"{inside}/frame_0001.jpg"),
        (f"{inside}/pipe.jpg", tarfile.FIFOTYPE, ""),
        (f"{inside}/device.jpg", tarfile.CHRTYPE, ""),
        (f"{inside}/folder.jpg", tarfile.DIRTYPE, ""),
    ]
    publish(site, office, [tar({**OFFICE, **hostile}, links=links)])
    folder = tmp_path / "deep" / "data"
    assert get(office, folder, mirror=site.address).state == "counted"
    assert sum(path.is_file() for path in folder.rglob("*.jpg")) == len(OFFICE)
    assert names(tmp_path) == ["deep", "secret.jpg"]


@pytest.mark.parametrize("limit", ["LARGEST_MEMBER", "LARGEST_ARCHIVE"])
def test_an_archive_that_unfolds_too_far_is_refused(tmp_path, monkeypatch, limit):
    path = tmp_path / "some.tar.gz"
    path.write_bytes(tar({"top/1.jpg": bytes(60), "top/2.jpg": bytes(60)}))
    assert len(list(tar_members(path, r"(\d\.jpg)"))) == 2
    monkeypatch.setattr(originals, limit, {"LARGEST_MEMBER": 59, "LARGEST_ARCHIVE": 119}[limit])
    with pytest.raises(DamagedFileError, match=r"some.tar.gz holds \d.jpg of 60 bytes, more than is expected"):
        list(tar_members(path, r"(\d\.jpg)"))


def test_a_folder_that_cannot_be_made_is_told(tmp_path, artificial):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match=r"file.* cannot be written \(Not a directory\); .*--data DIR"):
        get(artificial, tmp_path / "file" / "data")


@pytest.mark.parametrize("line", ["1 0:1 9999:2", "what is this", "1 3:x"])
def test_rows_that_are_not_reviews_are_refused(site, tmp_path, line):
    data_set = find_data_set("reviews")
    publish(site, data_set, [b"1 0:1\n"] * 7 + [line.encode()])
    with pytest.raises(DamagedFileError, match=r"^The reviews are not svmlight files of 5,000 columns"):
        get(data_set, tmp_path, mirror=site.address)


def test_rows_of_reviews_are_stacked_as_in_the_well_known_file(site, tmp_path):
    lines = [f"{1 if part % 2 else -1} {part}:3 4999:{part + 1}\n" * (part + 1) for part in range(8)]
    arrays = {
        "xx_data": np.concatenate([[3, part + 1] * (part + 1) for part in range(8)]).astype(np.uint8),
        "xx_indices": np.concatenate([[part, 4999] * (part + 1) for part in range(8)]).astype(np.uint16),
        "xx_indptr": np.arange(0, 74, 2, dtype=np.int32),
        "xx_shape": np.array([5000, 36], np.int32),
        "yy": np.concatenate([[1 if part % 2 else -1] * (part + 1) for part in range(8)]).astype(np.int8)[:, None],
        "offset": np.array([[0], [3], [10], [21], [36]], np.int32),
        "vocabulary": np.empty(0, "U1"),
    }
    data_set = rebuilt("reviews", arrays)
    publish(site, data_set, [text.encode() for text in lines])
    assert get(data_set, tmp_path, mirror=site.address).state == "right"


def real(name, *keys, file=0):
    with np.load(find_file(find_data_set(name).files[file].name), allow_pickle=False) as arrays:
        return {key: arrays[key] for key in keys or arrays.files}


class TestRealOriginals:
    """The originals, written again from the benchmark files, give files with the digests of the catalogue."""

    pytestmark = pytest.mark.data

    def test_artificial(self, site, tmp_path):
        data_set = find_data_set("artificial")
        publish(site, data_set, [npy(array) for array in real("artificial").values()])
        assert get(data_set, tmp_path, mirror=site.address).state == "right"
        for ours, known in zip(load_artificial(tmp_path), load_artificial(), strict=True):
            np.testing.assert_array_equal(ours, known)

    def test_reviews(self, site, tmp_path):
        data_set, arrays = find_data_set("reviews"), real("reviews")
        publish(site, data_set, list(svmlight_files(arrays)))
        assert get(data_set, tmp_path, mirror=site.address).state == "right"
        ours, known = load_reviews(tmp_path), load_reviews()
        assert ours.vocabulary == []
        for name in known.rows:
            assert sparse.linalg.norm(ours.rows[name] - known.rows[name]) == 0
            np.testing.assert_array_equal(ours.labels[name], known.labels[name])

    def test_photographs(self, site, tmp_path):
        data_set, arrays = find_data_set("photographs"), real("photographs")
        parts = np.split(arrays["jpeg"], arrays["jpeg_offset"][1:-1])
        numbered = zip(arrays["image_id"].tolist(), parts, strict=True)
        files = {f"top/BSDS500/data/images/train/{number}.jpg": part.tobytes() for number, part in numbered}
        others = {"top/BSDS500/data/images/test/1.jpg": b"", "top/BSDS500/data/images/train/Thumbs.db": b""}
        publish(site, data_set, [tar({**others, **dict(reversed(files.items()))})])
        assert get(data_set, tmp_path, mirror=site.address).state == "right"

    def test_counts_and_labels_are_those_of_the_files(self):
        office, mnist_m = real("office-31", "domain", "y"), find_data_set("mnist-m")
        sizes = np.bincount(office["domain"]).tolist()
        classes = [len(set(office["y"][office["domain"] == code].tolist())) for code in range(3)]
        assert [count for _, count in find_data_set("office-31").counts] == sizes + classes
        labels = real("mnist", "y_train")["y_train"][: mnist_m.counts[0][1]]
        packed, test = (real("mnist-m", "y", file=file)["y"] for file in range(2))
        assert [digest for _, digest in mnist_m.labels] == [sha256(labels), sha256(test)]
        np.testing.assert_array_equal(packed, labels[:30000])


def svmlight_files(arrays):
    """The eight texts: training then test rows of each category, an index and a count for every word."""
    ends, offset = arrays["xx_indptr"].tolist(), arrays["offset"].ravel().tolist()
    pairs = [f"{i}:{count}" for i, count in zip(arrays["xx_indices"].tolist(), arrays["xx_data"].tolist(), strict=True)]
    labels = arrays["yy"].ravel().tolist()
    for first, last in itertools.pairwise(offset):
        for rows in (range(first, first + 2000), range(first + 2000, last)):
            lines = (f"{labels[row]} {' '.join(pairs[ends[row] : ends[row + 1]])}\n" for row in rows)
            yield "".join(lines).encode()
