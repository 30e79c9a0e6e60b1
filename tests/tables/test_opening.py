import pytest

from momentalign.tables.opening import find_format


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        ("a,b\n1,2\n", "table.txt", "csv"),
        ("when\nMon 12:30\n", "table.txt", "csv"),
        ("1\n0 3:1\n", "table.txt", "svmlight"),
        ("1\n2\n", "table.txt", "csv"),
        ("time,b\n12:30,2\n", "table.txt", "csv"),
        ("time\n12:30\n", "table.csv", "csv"),
        ("# made by hand\n1 1:2\n-1 3:4 7:1e-3\n", "table.txt", "svmlight"),
        ("1\n", "table.svmlight", "svmlight"),
        ("1 1:2\n", "table.LIBSVM", "svmlight"),
    ],
)
def test_text(tmp_path, content, name, expected):
    (tmp_path / name).write_text(content)
    assert find_format(tmp_path / name) == expected


def test_the_caller_knows_better(tmp_path):
    (tmp_path / "table.txt").write_text("1 1:2\n")
    assert find_format(tmp_path / "table.txt", "csv") == "csv"
    assert find_format(tmp_path) == find_format(tmp_path, "images") == "images"
