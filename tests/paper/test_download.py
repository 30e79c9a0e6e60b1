"""Downloads from a server on this machine: whole, broken, resumed, wrong, too large, and onto a full disk."""

import hashlib
import http.client
import io
import json
import socket
import subprocess
import sys
import threading
import urllib.request
from functools import partial

import pytest

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.paper.download import _SafeRedirects, download, mirrored

CONTENT = bytes(range(256)) * 3000
HALF = len(CONTENT) // 2


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def ranges_of(site, folder, content=CONTENT):
    """Fetch the whole file and return the range of every request so far."""
    assert download(f"{site.address}/some.bin", folder / "some.bin").read_bytes() == content
    assert names(folder) == ["some.bin"]
    return [wanted for _, wanted, _ in site.asked]


def interrupt(site, folder):
    """Begin a download and stop it half of the way, as by ^C; return the bytes that are kept."""

    def progress(done, _total):
        if done >= HALF:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(f"{site.address}/some.bin", folder / "some.bin", progress=progress)
    return (folder / "some.bin.part").stat().st_size


def leave_part(site, folder, content, total):
    (folder / "some.bin.part").write_bytes(content)
    facts = {"url": f"{site.address}/some.bin", "validator": '"one"', "total": total}
    (folder / "some.bin.part.json").write_text(json.dumps(facts), encoding="ascii")


def test_a_file_arrives_whole_and_nothing_else_stays(site, tmp_path):
    seen, digest = [], hashlib.sha256(CONTENT).hexdigest()
    address, goal = f"{site.address}/some.bin", tmp_path / "some.bin"
    path = download(address, goal, sha256=digest, progress=lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["some.bin"]
    assert seen == sorted(seen)
    assert seen[-1] == (len(CONTENT), len(CONTENT))


DATE = "Wed, 01 May 2019 00:00:00 GMT"


@pytest.mark.parametrize(
    ("settings", "ranges"),
    [
        ({"cuts": [HALF, 1000]}, [None, f"bytes={HALF}-", f"bytes={HALF + 1000}-"]),
        ({"cuts": [HALF, 1000], "chunked": True}, [None, f"bytes={HALF}-", f"bytes={HALF + 1000}-"]),
        ({"cuts": [HALF], "knows_ranges": False}, [None, f"bytes={HALF}-"]),
        # Only a strong validator lets a part be used.
        ({"cuts": [HALF], "headers": {}}, [None, None]),
        ({"cuts": [HALF], "headers": {"ETag": 'W/"weak"'}}, [None, None]),
        ({"cuts": [HALF], "headers": {"ETag": 'W/"weak"', "Last-Modified": DATE}}, [None, f"bytes={HALF}-"]),
    ],
)
def test_a_broken_transfer_goes_on_where_the_server_confirms_the_file(site, tmp_path, settings, ranges):
    vars(site).update(settings)
    assert ranges_of(site, tmp_path) == ranges
    validator = site.headers.get("Last-Modified", site.headers.get("ETag"))
    assert [same for _, wanted, same in site.asked if wanted] == [validator for wanted in ranges if wanted]


def test_what_came_is_kept_when_no_try_brings_more(site, tmp_path):
    site.cuts = [HALF, 0]
    with pytest.raises(
        DataNotFoundError, match=rf"^http.*some.bin could not be fetched, {HALF} bytes are here .*again"
    ):
        download(f"{site.address}/some.bin", tmp_path / "some.bin")
    assert names(tmp_path) == ["some.bin.part", "some.bin.part.json"]
    assert ranges_of(site, tmp_path)[-1] == f"bytes={HALF}-"


def test_an_interrupt_leaves_the_part_for_the_next_run_unless_the_file_changed(site, tmp_path):
    size = interrupt(site, tmp_path)
    assert size >= HALF
    assert ranges_of(site, tmp_path) == [None, f"bytes={size}-"]
    (tmp_path / "some.bin").unlink()
    interrupt(site, tmp_path)
    site.files["/some.bin"], site.headers = CONTENT[::-1], {"ETag": '"two"'}
    ranges_of(site, tmp_path, CONTENT[::-1])


@pytest.mark.parametrize("facts", ["not JSON", "[1]", '{"url": "http://other.org/some.bin", "validator": "1"}', None])
def test_a_part_of_unknown_origin_is_not_used(site, tmp_path, facts):
    (tmp_path / "some.bin.part").write_bytes(b"something else")
    if facts is not None:
        (tmp_path / "some.bin.part.json").write_text(facts, encoding="ascii")
    assert ranges_of(site, tmp_path) == [None]


@pytest.mark.parametrize(
    ("part", "total", "wrong_range", "ranges"),
    [
        (CONTENT, len(CONTENT), False, []),  # it is whole and only gets its name
        (CONTENT + b"more", None, False, [f"bytes={len(CONTENT) + 4}-", None]),  # too long
        (CONTENT[:HALF], len(CONTENT), True, [f"bytes={HALF}-", None]),  # another range came than was asked for
    ],
)
def test_a_part_is_continued_only_by_what_follows_it(site, tmp_path, part, total, wrong_range, ranges):
    leave_part(site, tmp_path, part, total)
    site.wrong_range = wrong_range
    assert ranges_of(site, tmp_path) == ranges


def test_a_wrong_checksum_removes_the_file(site, tmp_path):
    with pytest.raises(
        DamagedFileError, match=r"not the file it should be .SHA-256 [0-9a-f]{12}, expected 000000000000"
    ):
        download(f"{site.address}/some.bin", tmp_path / "some.bin", sha256="0" * 64)
    assert names(tmp_path) == []


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found"), (503, "503 Service Unavailable")])
def test_a_refusal_is_told_with_its_address(site, tmp_path, status, words):
    site.statuses["/some.bin"] = status
    with pytest.raises(DataNotFoundError, match=rf"^{site.address}/some.bin answered {words}; .*--mirror URL.$"):
        download(f"{site.address}/some.bin", tmp_path / "some.bin")
    assert names(tmp_path) == []


def test_a_place_that_cannot_be_reached_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/some.bin"
        with pytest.raises(DataNotFoundError, match=rf"^{address} could not be fetched, 0 bytes .*Connection refused"):
            download(address, tmp_path / "some.bin")


def test_a_silent_server_is_not_waited_for(site, tmp_path):
    site.silent, site.cuts = threading.Event(), [HALF, 0]
    with pytest.raises(DataNotFoundError, match=rf"{HALF} bytes are here \(.*timed out"):
        download(f"{site.address}/some.bin", tmp_path / "some.bin", timeout=0.2)


@pytest.mark.parametrize("scheme", ["file://", "ftp://127.0.0.1", "data:,"])
def test_redirects_to_elsewhere_are_refused(site, tmp_path, scheme):
    secret = tmp_path / "secret"
    secret.write_bytes(b"of this machine")
    site.redirects["/old"] = f"{scheme}{secret}"
    with pytest.raises(DataNotFoundError, match=r"not safe to follow|not allowed"):
        download(f"{site.address}/old", tmp_path / "some.bin")
    assert names(tmp_path) == ["secret"]


def test_an_encrypted_address_never_leads_to_an_open_one():
    request, headers = urllib.request.Request("https://some.org/some.bin"), http.client.HTTPMessage()
    follow = partial(_SafeRedirects().redirect_request, request, io.BytesIO(), 302, "Found", headers)
    assert follow("https://other.org/some.bin").full_url == "https://other.org/some.bin"
    with pytest.raises(DataNotFoundError, match="not safe to follow"):
        follow("http://other.org/some.bin")


@pytest.mark.parametrize("chunked", [False, True])
def test_more_bytes_than_expected_are_refused(site, tmp_path, chunked):
    site.chunked = chunked
    # Where the server says the size, not a byte is taken.
    size = r"1\d{5}" if chunked else len(CONTENT)
    with pytest.raises(
        DamagedFileError, match=rf" {size} bytes or more, at most 100000 were expected; nothing is kept"
    ):
        download(f"{site.address}/some.bin", tmp_path / "some.bin", largest=100_000)
    assert names(tmp_path) == []


FULL_DISK = """
import resource, sys
from pathlib import Path
from momentalign.paper.download import download
from momentalign.errors import InvalidInputError
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    download(sys.argv[1], Path(sys.argv[2]))
except InvalidInputError as error:
    print(error)
"""


def test_a_full_disk_is_told_and_the_part_goes_on_later(site, tmp_path):
    goal = tmp_path / "some.bin"
    url = f"{site.address}/some.bin"
    told = subprocess.run([sys.executable, "-c", FULL_DISK, url, str(goal)], capture_output=True, text=True, check=True)
    assert told.stdout.startswith(f"{goal}.part cannot be written (File too large); make room")
    assert names(tmp_path) == ["some.bin.part", "some.bin.part.json"]
    assert ranges_of(site, tmp_path)[-1] == "bytes=200000-"


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/some", "some.bin", "http:///some", ""])
def test_only_web_addresses_are_taken(url, tmp_path):
    with pytest.raises(InvalidInputError, match=r"^url must start with http:// or https://, got"):
        download(url, tmp_path / "some.bin")
    with pytest.raises(InvalidInputError, match=r"^mirror must start with http:// or https://, got"):
        mirrored("https://some.org/some", url)


def test_a_mirror_stands_for_scheme_and_host():
    url = "https://some.org/deep/file.gz?raw=1"
    assert mirrored(url, None) == url
    assert mirrored(url, "http://127.0.0.1:80") == "http://127.0.0.1:80/deep/file.gz?raw=1"
    assert mirrored(url, "http://other.org/copies/") == "http://other.org/copies/deep/file.gz?raw=1"
