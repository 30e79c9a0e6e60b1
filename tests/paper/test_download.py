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


def stop_at(size):
    """A progress function that is interrupted there, as by ^C."""

    def progress(done, total):
        if done >= size:
            raise KeyboardInterrupt

    return progress


def interrupted(site, path, size=HALF):
    with pytest.raises(KeyboardInterrupt):
        download(f"{site.address}/some.bin", path, progress=stop_at(size))


def test_a_file_arrives_whole_and_nothing_else_stays(site, tmp_path):
    seen = []
    path = download(
        f"{site.address}/some.bin",
        tmp_path / "some.bin",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        progress=lambda *step: seen.append(step),
    )
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["some.bin"]
    assert seen == sorted(seen)
    assert seen[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("chunked", [False, True])
def test_a_broken_transfer_goes_on_with_a_range(site, tmp_path, chunked):
    site.chunked, site.cuts = chunked, [HALF, 1000]
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT
    ranges = [None, f"bytes={HALF}-", f"bytes={HALF + 1000}-"]
    assert site.asked == [("/some.bin", bytes_from, bytes_from and '"one"') for bytes_from in ranges]
    assert names(tmp_path) == ["some.bin"]


def test_what_came_is_kept_when_no_try_brings_more(site, tmp_path):
    site.cuts = [HALF, 0]
    with pytest.raises(
        DataNotFoundError, match=rf"^http.*some.bin could not be fetched, {HALF} bytes are here .*again"
    ):
        download(f"{site.address}/some.bin", tmp_path / "some.bin")
    assert names(tmp_path) == ["some.bin.part", "some.bin.part.json"]
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT
    assert site.asked[-1][1] == f"bytes={HALF}-"


def test_an_interrupt_leaves_the_part_for_the_next_run(site, tmp_path):
    interrupted(site, tmp_path / "some.bin")
    size = (tmp_path / "some.bin.part").stat().st_size
    assert size >= HALF
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT
    assert site.asked[-1] == ("/some.bin", f"bytes={size}-", '"one"')


def test_a_server_without_ranges_sends_all_again(site, tmp_path):
    site.cuts, site.knows_ranges = [HALF], False
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT
    assert site.asked[1][1] == f"bytes={HALF}-"


def test_a_file_that_changed_meanwhile_starts_again(site, tmp_path):
    interrupted(site, tmp_path / "some.bin")
    site.files["/some.bin"], site.headers = CONTENT[::-1], {"ETag": '"two"'}
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({}, None),
        ({"ETag": 'W/"weak"'}, None),
        (
            {"ETag": 'W/"weak"', "Last-Modified": "Wed, 01 May 2019 00:00:00 GMT"},
            "Wed, 01 May 2019 00:00:00 GMT",
        ),
    ],
)
def test_only_a_strong_validator_lets_a_part_be_used(site, tmp_path, headers, validator):
    site.headers, site.cuts = headers, [HALF]
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT
    assert site.asked[1] == ("/some.bin", f"bytes={HALF}-" if validator else None, validator)


@pytest.mark.parametrize("facts", ["not JSON", "[1]", '{"url": "http://other.org/some.bin", "validator": "1"}', None])
def test_a_part_of_unknown_origin_is_not_used(site, tmp_path, facts):
    (tmp_path / "some.bin.part").write_bytes(b"something else")
    if facts is not None:
        (tmp_path / "some.bin.part.json").write_text(facts, encoding="ascii")
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT
    assert site.asked == [("/some.bin", None, None)]


def leave_part(site, folder, content, total):
    (folder / "some.bin.part").write_bytes(content)
    facts = {"url": f"{site.address}/some.bin", "validator": '"one"', "total": total}
    (folder / "some.bin.part.json").write_text(json.dumps(facts), encoding="ascii")


def test_a_whole_part_only_gets_its_name(site, tmp_path):
    leave_part(site, tmp_path, CONTENT, len(CONTENT))
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT
    assert site.asked == []
    assert names(tmp_path) == ["some.bin"]


def test_a_part_that_is_too_long_is_thrown_away(site, tmp_path):
    leave_part(site, tmp_path, CONTENT + b"more", None)
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT
    assert [bytes_from for _, bytes_from, _ in site.asked] == [f"bytes={len(CONTENT) + 4}-", None]


def test_a_range_that_was_not_asked_for_is_not_put_in(site, tmp_path):
    leave_part(site, tmp_path, CONTENT[:HALF], len(CONTENT))
    site.wrong_range = True
    assert download(f"{site.address}/some.bin", tmp_path / "some.bin").read_bytes() == CONTENT
    assert [bytes_from for _, bytes_from, _ in site.asked] == [f"bytes={HALF}-", None]


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
    assert download(url, goal).read_bytes() == CONTENT
    assert site.asked[-1][1] == "bytes=200000-"


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
