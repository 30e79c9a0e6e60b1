"""Pages as a browser shows them: what runs over the edge, and what a keyboard or a screen reader cannot follow.

The second is found by axe-core, on a desk in light colours and on a phone in dark ones.
"""

import functools
import importlib.metadata
import json
import queue
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def axe_core():
    """Return the script of axe-core."""
    return next(Path(file.locate()) for file in importlib.metadata.files("axe-core-python") if file.suffix == ".js")


FRAMES = """<!doctype html><title>frames</title><body><script>
const loaded = (element) => new Promise((done) => { element.onload = done; });
const look = async (page, width, theme) => {
  const frame = document.createElement("iframe"), there = loaded(frame);
  frame.style.cssText = `border:0;width:${width}px;height:900px;color-scheme:${theme}`;
  frame.src = page;
  document.body.append(frame);
  await there;
  const inside = frame.contentDocument, script = inside.createElement("script"), ready = loaded(script);
  inside.body.dataset.theme = theme;
  const asked = frame.contentWindow.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  if (asked !== theme) return [`${page}: asked for ${theme} colours, got ${asked} ones`];
  script.src = "/axe.js";
  inside.head.append(script);
  await ready;
  const {violations} = await frame.contentWindow.axe.run(inside, {resultTypes: ["violations"]});
  const faults = violations.filter(({impact}) => impact !== "minor").map(({id, nodes}) => `${id}, ${nodes[0].html}`);
  // The theme scrolls the part beside its sidebars, not the page.
  for (const {scrollWidth, clientWidth} of inside.querySelectorAll("html, .content"))
    if (scrollWidth > clientWidth) faults.push(`too wide by ${scrollWidth - clientWidth} pixels`);
  frame.remove();
  return faults.map((fault) => `${page} at ${width}, ${theme}: ${fault}`);
};
(async () => {
  const found = [];
  for (const page of PAGES) for (const [width, theme] of [[1280, "light"], [390, "dark"]])
    found.push(...await look(page, width, theme).catch((error) => [`${page}: ${error}`]));
  fetch("/found", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


class Desk(SimpleHTTPRequestHandler):
    """Serves a folder, the page that looks at its pages, and takes what was found."""

    def __init__(self, *arguments, ours, found, **settings):
        self.ours, self.found = ours, found
        super().__init__(*arguments, **settings)

    def do_GET(self):
        if self.path not in self.ours:
            super().do_GET()
            return
        self.reply(self.ours[self.path])

    def do_POST(self):
        self.found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.reply(b"")

    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if self.path.endswith(".js") else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def faults(folder, profile):
    """Open every page of a folder on a desk and on a phone; return what runs over or cannot be followed."""
    pages = [
        "/" + str(page.relative_to(folder)) for page in sorted(folder.rglob("*.html")) if "_modules" not in page.parts
    ]
    frames = FRAMES.replace("PAGES", json.dumps(pages)).encode()
    found = queue.Queue()
    desk = functools.partial(
        Desk, directory=folder, ours={"/frames": frames, "/axe.js": axe_core().read_bytes()}, found=found
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), desk) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1400,1000"]
        address = f"http://127.0.0.1:{server.server_port}/frames"
        browser = subprocess.Popen(
            [BROWSER, *flags, f"--user-data-dir={profile}", address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return found.get(timeout=400)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
