"""Downloads that can be resumed: a file is whole under its name, or in part beside it as ``<name>.part``.

Ranges and their validators are those of HTTP (RFC 9110, Sections 13 and 14). Only http and https are spoken.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from momentalign.errors import DamagedFileError, DataNotFoundError, InvalidInputError
from momentalign.files import flush_folder, replace_file
from momentalign.paper.catalogue import file_sha256
from momentalign.version import __version__

__all__ = ["Progress", "download", "mirrored"]

Progress: TypeAlias = Callable[[int, int | None], None]

CHUNK = 2**16
# More than any set of the paper needs; a server that never stops is stopped here.
LARGEST = 2**31
SCHEMES = ("http", "https")


class _BrokenError(Exception):
    """A transfer that ended early; what came is kept."""


def download(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    largest: int = LARGEST,
    timeout: float = 30.0,
    progress: Progress = lambda _done, _total: None,
) -> Path:
    """Fetch a file, resuming an earlier try, and return its path; a file already there is not fetched.

    A broken transfer is tried again for as long as a try brings new bytes. An earlier part is used only where the
    server confirms, by its ETag or date, that the file is still the same.

    Parameters
    ----------
    url
        Where the file is: http or https.
    path
        Where it goes; it has this name only when it is whole and, where `sha256` is given, right.
    sha256
        Its known digest; None where none is known.
    largest
        More bytes than this are refused.
    timeout
        Seconds without an answer after which a transfer counts as broken.
    progress
        Called with the bytes that are here and, where the server says it, the bytes of the whole file.

    Examples
    --------
    >>> download("ftp://example.org/digits.gz", Path("digits.gz"))
    Traceback (most recent call last):
        ...
    momentalign.errors.InvalidInputError: url must start with http:// or https://, got 'ftp://example.org/digits.gz'.
    """
    _check_scheme("url", url)
    if not path.is_file():
        part = _Part(path, url)
        try:
            _transfer_all(part, largest, timeout, progress)
        except OSError as error:
            if isinstance(error, DataNotFoundError):
                raise
            raise InvalidInputError(
                f"{part.path} cannot be written ({error.strerror}); make room or give another folder, then run it "
                "again: it goes on where it was."
            ) from error
    digest = file_sha256(path)
    if sha256 is not None and digest != sha256:
        path.unlink()
        raise DamagedFileError(
            f"{url} is not the file it should be (SHA-256 {digest[:12]}, expected {sha256[:12]}) and was removed; "
            "get it again, or from another place with --mirror URL."
        )
    return path


def mirrored(url: str, mirror: str | None) -> str:
    """Return an address with the scheme and host of a mirror, whose own path comes first.

    Examples
    --------
    >>> mirrored("https://some.org/mnist/train.gz", "https://other.org/copies/")
    'https://other.org/copies/mnist/train.gz'
    """
    if mirror is None:
        return url
    _check_scheme("mirror", mirror)
    new, old = urlsplit(mirror), urlsplit(url)
    return urlunsplit((new.scheme, new.netloc, new.path.rstrip("/") + old.path, old.query, ""))


def _check_scheme(name: str, url: str) -> None:
    if urlsplit(url).scheme not in SCHEMES or not urlsplit(url).netloc:
        raise InvalidInputError(f"{name} must start with http:// or https://, got {url!r}.")


class _Part:
    """The part of a file that has arrived, and what the server stated about the whole: its validator and its size."""

    def __init__(self, goal: Path, url: str) -> None:
        self.goal, self.url = goal, url
        self.path = goal.with_name(f"{goal.name}.part")
        self._facts = goal.with_name(f"{goal.name}.part.json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def load_facts(self) -> dict[str, Any]:
        """What the server stated when the part began; empty for another address or where it cannot be read."""
        try:
            facts = json.loads(self._facts.read_bytes())
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) and facts.get("url") == self.url else {}

    def begin(self, validator: str | None, total: int | None) -> None:
        """Start from nothing; the old part goes first, so that it never stands beside new facts."""
        self.clear()
        facts = {"url": self.url, "validator": validator, "total": total}
        replace_file(self._facts, json.dumps(facts).encode())

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)

    def finish(self) -> None:
        self.path.replace(self.goal)
        self._facts.unlink(missing_ok=True)
        flush_folder(self.goal.parent)

    def check_size(self, size: int, largest: int) -> None:
        if size > largest:
            self.clear()
            raise DamagedFileError(
                f"{self.url} is {size} bytes or more, at most {largest} were expected; nothing is kept."
            )


def _transfer_all(part: _Part, largest: int, timeout: float, progress: Progress) -> None:
    """Transfer until the file is whole; a failure is final when it brought no byte more than the one before."""
    most = -1
    while True:
        try:
            _transfer(part, largest, timeout, progress)
        except _BrokenError as error:
            if part.size <= most:
                raise DataNotFoundError(
                    f"{part.url} could not be fetched, {part.size} bytes are here ({error}); run it again and it goes "
                    "on where it was, or take another place with --mirror URL."
                ) from error
            most = part.size
        else:
            part.finish()
            return


def _transfer(part: _Part, largest: int, timeout: float, progress: Progress) -> None:
    """One request, for the rest where a part is here."""
    facts, done = part.load_facts(), part.size
    if done and facts.get("total") == done:
        return
    ranged = done > 0 and isinstance(facts.get("validator"), str)
    headers = {"Range": f"bytes={done}-", "If-Range": facts["validator"]} if ranged else {}
    with _open(part, headers, timeout) as response:
        if response.status == http.client.PARTIAL_CONTENT:
            sent = response.headers.get("Content-Range", "")
            found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", sent)
            if not ranged or found is None or int(found[1]) != done:
                part.clear()
                raise _BrokenError(f"the server sent {sent!r:.40}, not what was asked for")
            total = _number(found[2])
        else:
            done, total = 0, _number(response.headers.get("Content-Length"))
            part.begin(_validator(response.headers), total)
        part.check_size(total or 0, largest)
        with part.path.open("ab") as file:
            while piece := _read(response):
                file.write(piece)
                done += len(piece)
                part.check_size(done, largest)
                progress(done, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done != total:
        raise _BrokenError(f"the connection ended at {done} of {total} bytes")


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(str(error) or type(error).__name__) from error


def _open(part: _Part, headers: dict[str, str], timeout: float) -> http.client.HTTPResponse:
    fixed = {"User-Agent": f"momentalign/{__version__}", "Accept-Encoding": "identity"}
    request = urllib.request.Request(part.url, headers={**fixed, **headers})  # noqa: S310 (http and https only)
    try:
        response: http.client.HTTPResponse = urllib.request.build_opener(_SafeRedirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.clear()
                raise _BrokenError("the part that was here is none of this file") from error
            raise DataNotFoundError(
                f"{part.url} answered {error.code} {' '.join(str(error.reason).split())}; try it later or take another "
                "place with --mirror URL."
            ) from error
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, DataNotFoundError):
            raise
        raise _BrokenError(str(getattr(error, "reason", error)) or type(error).__name__) from error
    return response


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects to http or https, never from https back to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:  # fmt: skip
        new = urlsplit(newurl).scheme
        if new not in SCHEMES or (req.type == "https" and new == "http"):
            fp.close()
            raise DataNotFoundError(
                f"{req.full_url} leads to {newurl!r:.80}, which is not safe to follow; take another place with "
                "--mirror URL."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _validator(headers: http.client.HTTPMessage) -> str | None:
    """What tells that a file is byte by byte the same: a strong ETag, or its date."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _number(digits: str | None) -> int | None:
    return int(digits) if digits and digits.isdecimal() else None
