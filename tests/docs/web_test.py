#!/usr/bin/env python3
"""Runs kernels in the page, in a headless Chromium: a good run, a fault, an endless loop, an invalid shape. Exits with 77 if there is no
Chromium, or no module on the site."""
import functools
import http.server
import json
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any, ClassVar

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2]), str(pathlib.Path(__file__).resolve().parents[1] / "mutation")]

from faults import FAULTS

SITE = pathlib.Path(__file__).resolve().parents[2] / "build" / "docs" / "html"
CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)

# Opens each page of a test in a frame of the given width; `press` waits for a run's output.
HARNESS = """<!doctype html><meta charset="utf-8"><body><script>
const errors = [];
async function open(url, width) {
  const frame = document.createElement('iframe');
  frame.style.cssText = `width:${width || 1000}px;height:800px`;
  document.body.replaceChildren(frame);
  await new Promise((done) => { frame.onload = done; frame.src = url; });
  const page = frame.contentDocument, hosts = [...page.querySelectorAll('[data-module]')], host = hosts.find((one) => !one.dataset.fault) || hosts[0];
  frame.contentWindow.addEventListener('error', (event) => errors.push(event.message));
  const set = (key, value) => {
    const field = host.querySelector(`[data-setting=${key}]`);
    field.value = value;
    field[field.tagName === 'SELECT' ? 'onchange' : 'oninput']();
  };
  const pressed = async (one, press) => {
    const before = one.dataset.runs, begin = performance.now();
    press();
    while (one.dataset.runs === before) await new Promise((done) => setTimeout(done, 20));
    return { text: one.querySelector('.output').innerText, seconds: (performance.now() - begin) / 1000 };
  };
  const press = () => pressed(host, () => host.querySelector('form').requestSubmit());
  return { page, host, hosts, set, press, pressed, window: frame.contentWindow };
}
(async () => { SCRIPT })().catch((error) => ({ failed: String(error.stack || error) })).then((value) =>
  fetch('/result', { method: 'POST', body: JSON.stringify({ value, errors }) }));
</script>"""


class Handler(http.server.SimpleHTTPRequestHandler):
    page = ""
    results: ClassVar[queue.Queue[Any]] = queue.Queue()

    def do_GET(self):
        if self.path != "/harness":
            return super().do_GET()
        body = Handler.page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        Handler.results.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def run_script(script):
    """Runs the body of an async function in a page served with the site; returns its result."""
    Handler.page = HARNESS.replace("SCRIPT", script)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = subprocess.Popen([str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}",
                                    "--remote-debugging-port=0", f"http://127.0.0.1:{server.server_port}/harness"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            result = Handler.results.get(timeout=240)
        finally:
            browser.kill()
            browser.wait()
            server.shutdown()
            server.server_close()
    if result["errors"] or "failed" in result["value"]:
        raise AssertionError(result)
    return result["value"]


ROLES = "chapter-05_flash_attention_3-step2_specialised-cuh.html"
TEXTBOOK = "chapter-01_naive_attention-step1_textbook-cuh.html"
CHAPTERS = ["01_naive_attention", "02_online_softmax", "03_flash_attention_1", "04_flash_attention_2", "05_flash_attention_3", "06_fp8", "07_backward",
            "08_decoding", "09_masks"]
HAVE = {path.stem for path in SITE.glob("web/*.wasm")}  # without a module, a chapter's pages have no Run
CHAPTERS = [name for name in CHAPTERS if name[:2] in HAVE]
FIRST = [sorted(path.name for path in SITE.glob(f"chapter-{name}-step1*.html"))[0] for name in CHAPTERS]
UNSEEN = [name for name, fault in FAULTS.items() if fault.unseen]


class Page(unittest.TestCase):
    def test_a_run_is_right_and_is_quick(self):
        first, second = run_script(f"""
          const {{ press, page }} = await open('{ROLES}');
          return [await press(), await press()];
        """)
        for run in (first, second):
            self.assertIn("Right.", run["text"])
            self.assertIn("log-sum-exp", run["text"])
            self.assertIn("N 256, d 64, full, bf16. 1 launch, 4 blocks", run["text"])
        self.assertLess(second["seconds"], 4)  # on a busy machine; the module is already loaded

    def test_a_fault_is_shown_and_reported_and_its_places_lead_to_their_lines(self):
        found = run_script(f"""
          const {{ press, page, host, set }} = await open('{ROLES}');
          set('fault', 'registers_kept_05');
          const planted = page.querySelector('.line.planted') !== null, old = page.querySelector('.line.taken-out').innerText;
          const report = await press();
          const links = [...host.querySelectorAll('.output a')].map((link) => link.getAttribute('href'));
          set('fault', 'wrong_parity_05');
          const other = host.querySelector('.new').innerText, gone = page.querySelector('.line.planted') === null;
          return {{ planted, old, report: report.text, links, step: host.querySelector('[data-setting=step]').value, other, gone,
                    wrong: (await press()).text }};
        """)
        self.assertTrue(found["planted"] and found["gone"])
        self.assertIn("setmaxnreg_dec", found["old"])
        self.assertIn("The simulator reports:", found["report"])
        self.assertIn("deadlock in block (0,0,0)", found["report"])
        self.assertTrue(any(link.startswith(f"{ROLES}#l00") for link in found["links"]), found["links"])
        self.assertEqual(found["step"], "2")
        self.assertIn("state.phase);", found["other"])
        self.assertIn("mbarrier empty[0] for parity 0", found["wrong"])

    def test_an_endless_loop_ends_and_the_page_goes_on(self):
        found = run_script(f"""
          const {{ press, host, set }} = await open('{TEXTBOOK}');
          set('fault', 'stands_still_01');
          const endless = await press();
          set('fault', '');
          return {{ endless, after: (await press()).text }};
        """)
        self.assertIn("An endless loop", found["endless"]["text"])
        self.assertIn("no new block began for 5 seconds", found["endless"]["text"])
        self.assertGreater(found["endless"]["seconds"], 4.9)
        self.assertIn("Right.", found["after"])

    def test_a_shape_that_cannot_be_is_refused(self):
        found = run_script(f"""
          const {{ press, set }} = await open('{TEXTBOOK}');
          const said = {{}};
          for (const n of ['513', '0', 'many', '']) {{
            set('n', n);
            said[n] = (await press()).text;
          }}
          return said;
        """)
        self.assertIn("N is at most 512", found["513"])
        self.assertIn("--seqlen is 'many': give a whole number", found["many"])
        for text in found.values():
            self.assertIn("This cannot run.", text)

    def test_the_address_has_the_state_and_a_phone_has_the_room(self):
        found = run_script(f"""
          const {{ page, host, window, press }} = await open('{ROLES}#run?step=3&n=128&mask=causal&mode=random&seed=7', 390);
          const values = Object.fromEntries([...host.querySelectorAll('[data-setting]')].map((field) => [field.dataset.setting, field.value]));
          const text = (await press()).text;
          const box = host.getBoundingClientRect();
          return {{ values, text, right: box.right, width: page.documentElement.scrollWidth, hash: window.location.hash,
                    unreachable: [...host.querySelectorAll('input, select, button')].filter((node) => node.tabIndex < 0).length }};
        """)
        self.assertEqual(found["values"], {"step": "3", "n": "128", "d": "64", "mask": "causal", "mode": "random", "seed": "7", "fault": "", "more": ""})
        self.assertIn("N 128, d 64, causal", found["text"])
        self.assertIn("Right.", found["text"])
        self.assertLessEqual(found["right"], 390)
        self.assertLessEqual(found["width"], 390)
        self.assertEqual(found["unreachable"], 0)

    def test_every_chapter_runs_on_the_page_of_its_first_kernel(self):
        found = run_script("""
          const texts = {};
          for (const url of PAGES) {
            const { press, set } = await open(url);
            set('n', '100');
            texts[url] = [(await press()).text];
            set('mode', 'random');
            set('seed', '3');
            texts[url].push((await press()).text);
          }
          return texts;
        """.replace("PAGES", json.dumps(list(FIRST))))
        for url, texts in found.items():
            for text in texts:
                self.assertIn("Right.", text, url)
                self.assertIn(f"./flashbook run {url[8:10]} -- --step", text, url)

    def test_the_faults_that_a_chapter_shows_run_beside_the_kernel_as_it_is(self):
        found = run_script("""
          const texts = {};
          for (const url of PAGES) {
            const { hosts, pressed } = await open(url);
            for (const host of hosts) texts[host.dataset.fault] = (await pressed(host, () => host.querySelector('button').click())).text;
          }
          return texts;
        """.replace("PAGES", json.dumps([f"chapter-{name}.html" for name in CHAPTERS])))
        self.assertEqual(len(found), 2 * len(CHAPTERS), found.keys())
        for name, text in found.items():
            good, _, bad = text.partition("With the fault")
            self.assertRegex(good, r"Without the fault\s+Right\.", name)
            if name in UNSEEN:
                self.assertIn(FAULTS[name].unseen, bad)
            else:
                self.assertRegex(bad, "The simulator reports:|Wrong, and|An endless loop", name)

    def test_without_scripts_nothing_is_shown(self):
        text = (SITE / ROLES).read_text(encoding="utf-8")
        self.assertRegex(text, r'<div class="interactive" data-module="05" [^>]*hidden></div>')
        self.assertNotIn("data-module", (SITE / "book.html").read_text(encoding="utf-8"))


if __name__ == "__main__":
    if not CHROMIUM or not (SITE / "web").is_dir():
        print("***Skipped: there is no Chromium, or the site has no modules (docs/web)")
        sys.exit(77)
    unittest.main()
