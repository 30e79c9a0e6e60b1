"""A web server on this machine that serves bytes from memory, with ranges, and breaks off when it is told to."""

import contextlib
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What is served and how; `asked` keeps the path, Range and If-Range of every request."""

    files: dict[str, bytes] = field(default_factory=dict)
    address: str = ""
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    # Bytes after which the next answers break off, one after the other.
    cuts: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=lambda: {"ETag": '"one"'})
    redirects: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    knows_ranges: bool = True
    wrong_range: bool = False
    chunked: bool = False
    silent: threading.Event | None = None


def answer(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.close_connection = True
            # Whoever asked may be gone before all is sent.
            with contextlib.suppress(ConnectionError):
                self.answer()

        def answer(self):
            wanted, same = self.headers.get("Range"), self.headers.get("If-Range")
            site.asked.append((self.path, wanted, same))
            if self.path in site.redirects:
                self.reply(302, {"Location": site.redirects[self.path]}, b"")
            elif self.path in site.statuses or self.path not in site.files:
                self.reply(site.statuses.get(self.path, 404), {}, b"no")
            else:
                self.serve(site.files[self.path], wanted if same in (None, *site.headers.values()) else None)

        def serve(self, content, wanted):
            if not wanted or not site.knows_ranges:
                self.reply(200, site.headers, content)
                return
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if start >= len(content):
                self.reply(416, {}, b"")
                return
            said = start + 1 if site.wrong_range else start
            place = {"Content-Range": f"bytes {said}-{len(content) - 1}/{len(content)}"}
            self.reply(206, {**site.headers, **place}, content[start:])

        def reply(self, status, headers, body):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            chunked = site.chunked and status < 300
            name, value = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body)))
            self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            cut = site.cuts.pop(0) if site.cuts and status < 300 else None
            if chunked:
                self.wfile.write(f"{len(body):x}\r\n".encode())
            self.wfile.write(body[:cut])
            if chunked and cut is None:
                self.wfile.write(b"\r\n0\r\n\r\n")
            self.wfile.flush()
            if site.silent is not None:
                site.silent.wait(20)

        def log_message(self, *_):
            pass

    return Handler


@contextlib.contextmanager
def serve():
    """Yield a site that can be asked at its address."""
    site = Site()
    with ThreadingHTTPServer(("127.0.0.1", 0), answer(site)) as server:
        site.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            if site.silent is not None:
                site.silent.set()
            server.shutdown()
            thread.join()
