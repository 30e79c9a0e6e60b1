import os
import re
from pathlib import Path

import pytest

from momentalign.errors import DataNotFoundError
from momentalign.paper.catalogue import DATA_SETS, FILES, data_folder


def test_every_known_file_is_listed_once_and_described():
    assert len(FILES) == sum(len(data_set.files) for data_set in DATA_SETS) == 11
    for file in FILES.values():
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert all(len(text) > 5 and not text.endswith(".") for text in (file.what, file.origin, file.licence))


def test_a_folder_that_is_given_comes_before_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("MOMENTALIGN_DATA", str(tmp_path / "other"))
    words = {"name": "some.npz", "explanation": "It is a file."}
    assert data_folder(str(tmp_path), **words) == tmp_path
    assert data_folder(None, **words) == tmp_path / "other"
    monkeypatch.delenv("MOMENTALIGN_DATA")
    with pytest.raises(DataNotFoundError, match=r"^some.npz is needed: .*--data DIR.*MOMENTALIGN_DATA. It is a file.$"):
        data_folder(None, **words)


@pytest.mark.data
def test_the_digests_are_those_of_the_files():
    sums = (Path(os.environ["MOMENTALIGN_DATA"]) / "SHA256SUMS").read_text(encoding="ascii")
    assert {file.name: file.sha256 for file in FILES.values()} == {
        name: digest for digest, name in map(str.split, sums.splitlines())
    }
