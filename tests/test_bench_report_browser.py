"""The report's page in a real browser, if one is installed: it sorts and filters, and uses no network.

With any browser: the page is served inside another one, which presses its buttons and posts what it shows. With
Chromium: the file of a real report is operated with mouse and keys, in wide and narrow windows, light and dark.

To run these tests, install a browser (`apt install chromium`) and pass this file to pytest. WEFTGRAD_PICTURES=DIR saves
screenshots.
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

import chromium
import pytest

from weftgrad.bench import page, plots, report_files, rows

BROWSER = chromium.PATH or shutil.which("firefox") or shutil.which("firefox-esr")
RESULTS = Path(page.__file__).parent / "results"

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


class ReportServer:
    """A server of both pages. results: what the driver page posted; requested_urls: the requested paths."""

    def __init__(self, report: str):
        self.results: dict[str, Any] = {}
        self.requested_urls: list[str] = []
        self.done = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requested_urls.append(self.path)
                text = {"/": DRIVER, "/report.html": report}.get(self.path)
                self.send_response(200 if text else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write((text or "").encode())

            def do_POST(self) -> None:
                server.results = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                server.done.set()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def served() -> Iterator[ReportServer]:
    def kernel(name: str, least: float, group: str = "one", **facts: Any) -> dict[str, Any]:
        return {"group": group, "name": name, "bytes": 0, "flops": 0, "missed": [], "target": None,
                "times": {"cpu": {"least": least, "median": least}}} | facts  # fmt: skip

    kernels = [kernel("row 2", 9e-6), kernel("row 10", 1e-2, bytes=10), kernel("row 1", 1e-4, bytes=100),
               kernel("other", 5e-5, "other", target={"torch": 1.0}, missed=["torch"]),
               {"group": "one", "name": "broken", "bytes": 0, "flops": 0, "problem": "WRONG"}]  # fmt: skip
    head = {"date": "2026", "devices": [{"device": "cpu", "name": "Cores"}], "torch": None, "versions": {}}
    report = {"suite": "core", "machine": head, "host": [], "kernels": kernels}
    server = ReportServer(page.html([report], rows.entries([report]), {}))
    thread = threading.Thread(target=server.server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.server.shutdown()
    server.server.server_close()
    thread.join()


def test_sorting_and_filtering(served: ReportServer, tmp_path: Path) -> None:
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
    results = served.results
    assert "error" not in results, results
    assert results["first"] == ["row 2", "row 10", "row 1", "other", "broken"]
    assert results["up"] == ["row 2", "other", "row 1", "row 10", "broken"]  # by value, not by text
    assert results["marks"] == ["ascending"]
    assert results["down"] == ["row 10", "row 1", "other", "row 2", "broken"]  # rows without a time stay last
    assert results["sparse"][:2] == ["row 10", "row 1"]
    assert results["names"] == ["broken", "other", "row 1", "row 2", "row 10"]
    assert results["text"] == ["row 1", "row 10"]
    assert results["count"] == "2 rows"
    assert results["group"] == ["other"]
    assert sorted(results["missed"]) == ["broken", "other"]
    assert results["hidden"] == [True]
    assert results["colour"] == "600"  # the content security policy allows the page's style
    assert set(served.requested_urls) <= {"/", "/report.html", "/favicon.ico"}


# The contrast ratio of WCAG 2.2 between the text's colour and the background.
CONTRAST = """(selector) => {
  const probe = document.body.appendChild(document.createElement("div"));
  const shown = (colour) => { probe.style.color = colour; return getComputedStyle(probe).color; };
  const rgb = (colour) => shown(colour).match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
  const light = (c) => c.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const [a, b] = [rgb(getComputedStyle(document.querySelector(selector)).color), rgb("Canvas")].map(light);
  probe.remove();
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""
FIRST = "[...document.querySelectorAll('.rows')].find((t) => t.tBodies[0].rows.length > 20)"
NAMES = f"[...{FIRST}.tBodies[0].rows].map((r) => r.cells[0].textContent)"
TIMES = f"[...{FIRST}.tBodies[0].rows].map((r) => Number(r.cells[1].dataset.value)).filter((v) => !isNaN(v))"


@pytest.mark.skipif(chromium.PATH is None, reason="needs chromium")
def test_a_users_browser(tmp_path: Path) -> None:
    report = report_files.load(next(RESULTS.glob("*ops*.json.gz")))
    report |= {"curves": [{"name": "step", "device": "cpu", "steps": [dict.fromkeys(
        ("allocated", "peak", "reserved", "driver_allocations", "driver_frees"), 1)]}]}  # fmt: skip
    entries = rows.entries([report])
    drawings = plots.svg(entries, [report]) if plots.available() else {}
    file = tmp_path / "report.html"
    file.write_text(page.html([report], entries, drawings), encoding="utf-8")
    pictures = Path(os.environ.get("WEFTGRAD_PICTURES") or tmp_path)
    with chromium.Chromium(tmp_path) as browser:
        wide_screen = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.send_command("Emulation.setDeviceMetricsOverride", **wide_screen)
        browser.open(file.as_uri())
        assert [a for a in browser.requested_urls if not a.startswith("data:")] == [file.as_uri()]
        images = browser.value("Promise.all([...document.images].map((i) => i.decode().then(() => i.naturalWidth)))")
        assert len(images) == len(drawings)
        assert all(size > 200 for size in images)

        # A click on a column head sorts by it; another one reverses the order.
        unsorted = browser.value(NAMES)
        head = f"{FIRST}.tHead.rows[0].cells[1].querySelector('button')"
        browser.click(head)
        ascending = browser.value(TIMES)
        assert ascending == sorted(ascending)
        assert browser.value(NAMES) != unsorted
        browser.picture(pictures / "sorted.png")
        # Tab moves from one column head to the next; Enter and space press it.
        browser.press("Enter", 13, "\r")
        assert browser.value(TIMES) == ascending[::-1]
        browser.press("Tab", 9)
        assert browser.value(f"document.activeElement === {head.replace('cells[1]', 'cells[2]')}")
        browser.press(" ", 32, " ")
        assert browser.value(f"{FIRST}.tHead.rows[0].cells[2].getAttribute('aria-sort')") == "ascending"

        # Type into the filter; the page shows the number of rows.
        browser.click("document.querySelector('.filter input[type=search]')")
        for letter in "sum":
            browser.press(letter, ord(letter.upper()), letter)
        visible_rows = "[...document.querySelectorAll('.rows tbody tr:not([hidden])')]"
        texts = browser.value(f"{visible_rows}.map((r) => r.textContent + r.dataset.group)")
        assert texts
        assert all("sum" in text.lower() for text in texts)
        assert browser.value("document.querySelector('output').value") == f"{len(texts)} rows"
        details = "document.querySelectorAll('.rows th.detail:not([style])')[0]?.offsetWidth > 0"
        assert not browser.value(details)
        browser.click("document.querySelector('.filter input[name=details]')")
        assert browser.value(details)
        browser.picture(pictures / "details.png")
        browser.value("document.querySelector('.filter').reset(); filter()")

        # Every control has a name, and the page fits a telephone: only tables scroll sideways.
        tree = browser.send_command("Accessibility.getFullAXTree")["nodes"]
        roles = ("button", "searchbox", "combobox", "checkbox", "link")
        controls = [n for n in tree if n.get("role", {}).get("value") in roles]
        assert len(controls) > 20
        assert all(n["name"].get("value") for n in controls)
        browser.send_command(
            "Emulation.setDeviceMetricsOverride", **(wide_screen | {"width": 360, "height": 740, "mobile": True})
        )
        assert browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        browser.picture(pictures / "narrow.png")
        browser.send_command("Emulation.setDeviceMetricsOverride", **wide_screen)
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.send_command("Emulation.setEmulatedMedia", features=[feature])
            for selector in ("h1", ".missed", ".rows td", "nav a"):
                assert browser.value(f"({CONTRAST})({json.dumps(selector)})") >= 4.5, (scheme, selector)
            browser.picture(pictures / f"{scheme}.png")
        assert browser.complaints == []
        assert [a for a in browser.requested_urls if not a.startswith("data:")] == [file.as_uri()]
