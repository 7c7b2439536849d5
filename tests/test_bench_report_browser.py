"""The report's page in a real browser, where one is installed: it sorts and filters, and asks no network.

The page is served unchanged and shown inside another one, which presses its buttons and posts what it sees.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from weftgrad.bench import page, rows

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable", "firefox",
         "firefox-esr")  # fmt: skip
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium or firefox")

DRIVER = """<!DOCTYPE html><html><body><iframe src="/report.html"></iframe><script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  const seen = {};
  try {
    const inner = frame.contentDocument;
    const names = () => [...inner.querySelectorAll(".rows tbody tr:not([hidden])")].map((r) => r.cells[0].textContent);
    const heads = [...inner.querySelectorAll(".rows th")];
    const press = (text) => heads.find((h) => h.textContent === text).querySelector("button").click();
    const input = (change) => { change(inner.querySelector("form").elements);
      inner.querySelector("form").dispatchEvent(new Event("input", { bubbles: true })); };
    seen.first = names();
    press("min µs"); seen.up = names();
    seen.marks = heads.map((h) => h.getAttribute("aria-sort")).filter((m) => m !== "none");
    press("min µs"); seen.down = names();
    press("GB/s"); seen.sparse = names();
    press("row"); seen.names = names();
    input((e) => { e.text.value = "ROW 1"; }); seen.text = names();
    seen.count = inner.querySelector("output").value;
    input((e) => { e.text.value = ""; e.group.value = "other"; }); seen.group = names();
    input((e) => { e.group.value = ""; e.missed.checked = true; }); seen.missed = names();
    input((e) => { e.text.value = "nothing"; });
    seen.hidden = [...inner.querySelectorAll("section")].map((s) => s.hidden);
    seen.colour = frame.contentWindow.getComputedStyle(inner.querySelector(".missed")).fontWeight;
  } catch (error) { seen.error = String(error); }
  fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
});
</script></body></html>"""


class Served:
    """A server of the two pages; `seen` is what the driver posted, `asked` the paths that were asked for."""

    def __init__(self, report: str):
        self.seen: dict[str, Any] = {}
        self.asked: list[str] = []
        self.done = threading.Event()
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.asked.append(self.path)
                text = {"/": DRIVER, "/report.html": report}.get(self.path)
                self.send_response(200 if text else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write((text or "").encode())

            def do_POST(self) -> None:
                served.seen = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                served.done.set()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def served() -> Iterator[Served]:
    def kernel(name: str, least: float, group: str = "one", **facts: Any) -> dict[str, Any]:
        return {"group": group, "name": name, "bytes": 0, "flops": 0, "missed": [], "target": None,
                "times": {"cpu": {"least": least, "median": least}}} | facts  # fmt: skip

    kernels = [kernel("row 2", 9e-6), kernel("row 10", 1e-2, bytes=10), kernel("row 1", 1e-4, bytes=100),
               kernel("other", 5e-5, "other", target={"torch": 1.0}, missed=["torch"]),
               {"group": "one", "name": "broken", "bytes": 0, "flops": 0, "problem": "WRONG"}]  # fmt: skip
    head = {"date": "2026", "devices": [{"device": "cpu", "name": "Cores"}], "torch": None, "versions": {}}
    report = {"suite": "core", "machine": head, "host": [], "kernels": kernels}
    made = Served(page.html([report], rows.entries([report]), {}))
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_sorting_and_filtering(served: Served, tmp_path: Path) -> None:
    assert BROWSER
    if "firefox" in BROWSER:
        command = [BROWSER, "--headless", "--no-remote", "--profile", str(tmp_path), served.url]
    else:
        command = [BROWSER, "--headless", "--disable-gpu", f"--user-data-dir={tmp_path}", "--remote-debugging-port=0",
                   *(["--no-sandbox"] if os.getuid() == 0 else []), served.url]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"HOME": str(tmp_path)})
        try:
            assert served.done.wait(60), (tmp_path / "log").read_text(errors="replace")[-2000:]
        finally:
            process.terminate()
            process.wait(20)
    seen = served.seen
    assert "error" not in seen, seen
    assert seen["first"] == ["row 2", "row 10", "row 1", "other", "broken"]
    assert seen["up"] == ["row 2", "other", "row 1", "row 10", "broken"]  # by value, not by text
    assert seen["marks"] == ["ascending"]
    assert seen["down"] == ["row 10", "row 1", "other", "row 2", "broken"]  # what has no time stays last
    assert seen["sparse"][:2] == ["row 10", "row 1"]
    assert seen["names"] == ["broken", "other", "row 1", "row 2", "row 10"]
    assert seen["text"] == ["row 1", "row 10"]
    assert seen["count"] == "2 rows"
    assert seen["group"] == ["other"]
    assert sorted(seen["missed"]) == ["broken", "other"]
    assert seen["hidden"] == [True]
    assert seen["colour"] == "600"  # the style is not kept out by the page's policy
    assert set(served.asked) <= {"/", "/report.html", "/favicon.ico"}
