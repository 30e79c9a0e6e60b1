from __future__ import annotations

import stat
from pathlib import Path

import pyarrow as pa
import pytest

from momentalign.errors import DataNotFoundError, InvalidInputError
from momentalign.workflow.predict import open_output


def test_parts_follow_each_other_under_one_header(tmp_path: Path):
    with open_output(tmp_path / "a.csv") as write:
        write(pa.table({"id": [1], "word": ['say "yes", twice']}))
        write(pa.table({"id": [2], "word": ["no"]}))
        assert not (tmp_path / "a.csv").exists()
    head, first, second = (tmp_path / "a.csv").read_text().splitlines()
    assert head == '"id","word"'
    assert first == '1,"say ""yes"", twice"'
    assert second in ("2,no", '2,"no"')


def test_a_new_file_may_be_read_by_others(tmp_path: Path):
    with open_output(tmp_path / "a.csv") as write:
        write(pa.table({"id": [1]}))
    (tmp_path / "b.csv").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.csv", "b.csv")}
    assert len(modes) == 1


def test_what_is_wrong_with_the_data_is_not_said_of_the_output(tmp_path: Path):
    def fail() -> None:
        with open_output(tmp_path / "a.csv"):
            raise DataNotFoundError("the image is gone")

    with pytest.raises(DataNotFoundError, match="the image is gone"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="is a folder; name a file in it"), open_output(tmp_path):
        pass
