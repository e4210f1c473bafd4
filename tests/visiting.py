"""What tests with a browser share: the site as MkDocs builds it, a server, and a visitor."""

import functools
import gzip
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest

playwright = pytest.importorskip("playwright.sync_api")

ROOT = Path(__file__).parent.parent
CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
    # Two pages of the address bar beside each window cost as much as one that is looked at. This
    # stands in place of the list of Playwright, of which it keeps what concerns paint and network.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,PaintHolding,HttpsUpgrades,"
    "AimEnabled,OptimizationHints,PreconnectToSearch,NetworkTimeServiceQuerying",
]  # fmt: skip
MODES = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {
        "color_scheme": "light", "viewport": {"width": 390, "height": 844}, "has_touch": True,
    },
}  # fmt: skip
PATIENCE_MS = 120_000  # on a machine that is busy with other things
SUB_PATH = "/below/"
TEXTS = {".html", ".css", ".js", ".json", ".svg", ".xml"}
needs_chromium = pytest.mark.skipif(
    not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}; set CHROMIUM"
)


class Quiet(SimpleHTTPRequestHandler):
    """Serve a folder below a path, so that an absolute link cannot work by accident."""

    def log_message(self, *args):
        pass

    def translate_path(self, path):
        inside = path.startswith(SUB_PATH)
        return super().translate_path("/" + path[len(SUB_PATH) :]) if inside else "/nowhere"


class Packed(Quiet):
    """Serve texts in gzip, as public hosts do."""

    def send_head(self):
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if path.suffix not in TEXTS or not path.is_file():
            return super().send_head()
        content = packed(path)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return BytesIO(content)


@functools.cache
def packed(path):
    return gzip.compress(path.read_bytes())


def build(data, out, **options):
    found = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'site'}", "ALMANAC_NPM": "off"}
    found |= {"ALMANAC_DATA_DIR": str(data), "ALMANAC_SITE_DIR": str(out)} | options
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environ = os.environ | found | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@contextmanager
def serve(folder, handler=Quiet):
    """Serve a folder for as long as needed; the address is that of its start page."""
    made = functools.partial(handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}{SUB_PATH}"
        server.shutdown()


@contextmanager
def chromium():
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield launched
        launched.close()


class Visitor:
    """A browser window that notes everything that goes wrong."""

    def __init__(self, browser, address, **mode):
        self.context = browser.new_context(**mode)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.address = address
        self.faults = []
        host = urlsplit(address).netloc
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("requestfailed", self._failed)
        self.page.on("response", lambda r: r.status >= 400 and self.faults.append(f"404: {r.url}"))
        self.page.on(
            "request",
            lambda r: urlsplit(r.url).netloc not in (host, "") and self.faults.append(r.url),
        )

    def _failed(self, request):
        # The next page aborts what the last one still asked for.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.faults.append(f"failed: {request.url}")

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text}")

    def go(self, path):
        self.page.goto(self.address + path)
        return self.page

    def see_charts(self):
        """Scroll to every chart that can be seen; return those that were not drawn."""
        missing = []
        for chart in self.page.query_selector_all(".ka-chart:has(.ka-live)"):
            if not chart.is_visible():
                continue
            chart.scroll_into_view_if_needed()
            name = chart.get_attribute("data-chart")
            try:
                self.page.wait_for_function(
                    "c => c.querySelector('.ka-live .main-svg .trace')"
                    " && c.classList.contains('ka-drawn')",
                    arg=chart,
                )  # fmt: skip
            except playwright.TimeoutError:
                missing.append(name)
        return missing


def page_kinds(site):
    """Return one page of each kind, the op's first."""
    commit = sorted((site / "commits").glob("*/index.html"))[-1].parent.name
    kinds = ["kernels/sinkhorn/", "", "kernels/", "roofline/", "regressions/", "commits/"]
    kinds += ["compare/", "compiler/"]
    kinds += [f"commits/{commit}/", "devices/", "devices/nvidia-h200/", "health/", "data/"]
    return [*kinds, "methodology/", "read-a-roofline/", "glossary/", "about/", "notes/"]
