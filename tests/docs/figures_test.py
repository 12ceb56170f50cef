#!/usr/bin/env python3
"""Tests the interactive figures in a headless Chromium: numbers, buttons and static pictures. Exits with 77 if there is no Chromium."""
import html
import itertools
import json
import math
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Any, ClassVar

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bench import steps
from docs.tools.interactive import scripts_of

FIGURES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "figures"
INTERACTIVE = FIGURES / "interactive"
SCRIPTS = sorted(INTERACTIVE.glob("*.js"), key=lambda file: (file.stem != "kit", file.stem))  # starts with the shared script
SCRIPTS_OF = scripts_of(INTERACTIVE)
NAMES = sorted(SCRIPTS_OF)
CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)


def browse(page, *flags):
    """Returns the page after its scripts have run."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # some of Chromium's processes end later, and write until then
        file = pathlib.Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile",
                   "--window-size=1100,1400", "--virtual-time-budget=200000", *flags, "--dump-dom", file.as_uri()]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=600).stdout.decode()


def run_script(script, *flags, data=None):
    """Runs the body of an async function in a page with all figures' scripts; returns its result and its errors."""
    sources = "".join(f'<script src="{file.as_uri()}"></script>' for file in SCRIPTS)
    page = f"""<!doctype html><html><head><meta charset="utf-8"><script>
      const errors = [];
      addEventListener('error', (event) => errors.push(String(event.message)));
      addEventListener('unhandledrejection', (event) => errors.push(String(event.reason)));
      console.error = console.warn = (...words) => errors.push(words.join(' '));
    </script>{sources}</head><body><script>
      const data = {json.dumps(data)};
      (async () => {{ {script} }})().catch((error) => {{ errors.push(String(error)); }}).then((value) => {{
        const result = document.createElement('pre');
        result.id = 'result';
        result.textContent = JSON.stringify({{ value, errors }});
        document.body.replaceChildren(result);
      }});
    </script></body></html>"""
    found = re.search(r'<pre id="result">(.*?)</pre>', browse(page, *flags), re.DOTALL)
    if not found:
        raise AssertionError("the page's script never finished")
    result = json.loads(html.unescape(found.group(1)))
    if result["errors"]:
        raise AssertionError(f"errors on the page: {result['errors']}")
    return result["value"]


class Texts(unittest.TestCase):
    def test_every_text_is_inside_its_figure(self):
        drawn = {path.name: path.read_text(encoding="utf-8") for path in sorted(FIGURES.glob("*.svg"))}
        outside = run_script("""
          const found = [];
          for (const [name, text] of Object.entries(data)) {
            const host = document.body.appendChild(document.createElement('div'));
            host.attachShadow({ mode: 'open' }).innerHTML = text.slice(text.indexOf('<svg'));
            const card = host.shadowRoot.querySelector('svg').getBoundingClientRect();
            for (const words of host.shadowRoot.querySelectorAll('text')) {
              const place = words.getBoundingClientRect();
              if (place.left < card.left || place.right > card.right) found.push(name + ': ' + words.textContent);
            }
            host.remove();
          }
          return found;""", data=drawn)
        self.assertEqual(outside, [])


class OnlineSoftmax(unittest.TestCase):
    def runs(self, cases):
        """Each case is (scores, block size). JSON has no infinity, so null means a masked score, or the maximum of no scores."""
        data = [[[None if s == -math.inf else s for s in scores], size] for scores, size in cases]
        return run_script("""
          const { run } = flashbookFigures.online_softmax.model;
          return data.map(([scores, size]) => {
            const r = run(scores.map((s) => (s === null ? -Infinity : s)), size);
            return { m: r.m, l: r.l, o: r.o, weights: r.weights, difference: r.difference, steps: r.steps.length,
                     blocks: r.blocks.map((b) => [b.m, b.correction, b.oldSum, b.l]) };
          });""", data=data)

    def test_equals_two_passes(self):
        generator = random.Random(1)
        cases = []
        for size in range(1, 17):
            scores = [generator.uniform(-30, 30) for _ in range(generator.randint(size, 16))]
            cases.append((scores, size))
            cases.append(([s if generator.random() < 0.6 else -math.inf for s in scores], size))
        for (scores, _), result in zip(cases, self.runs(cases)):
            m = max(scores)
            terms = [math.exp(s - m) if m > -math.inf else 0 for s in scores]
            total = sum(terms)
            self.assertEqual(result["m"], None if m == -math.inf else m)
            self.assertAlmostEqual(result["l"], total, delta=1e-12 * len(scores))
            self.assertLess(result["difference"], 1e-12 * len(scores))
            for weight, expected in zip(result["weights"], terms):
                self.assertAlmostEqual(weight, expected / total if total else 0, delta=1e-12)
            self.assertAlmostEqual(result["o"], sum(i * t for i, t in enumerate(terms, 1)) / total if total else 0, delta=1e-10)


class AttentionTiles(unittest.TestCase):
    @staticmethod
    def closed_forms(schedule, p):
        """Returns the bytes (read, written) by tensor, and the peak size in SRAM."""
        n, rows_q, rows_k, d = p["n"], p["rowsQ"], p["rowsK"], p["d"]
        firsts = itertools.product(range(0, n, rows_q), range(0, n, rows_k))
        tiles = sum(1 for query, key in firsts if not p["causal"] or key <= query + rows_q - 1)
        whole, pairs = 2 * n * d, tiles * rows_q * rows_k
        zero = (0, 0)
        again_k, again_q = 2 * rows_k * d * tiles, 2 * rows_q * d * tiles
        products = 2 * rows_k * d + 4 * rows_q * rows_k
        if schedule == "naive":
            moved = {"Q": (whole, 0), "K": (again_k, 0), "V": (again_k, 0), "S": (4 * pairs, 4 * pairs), "P": (2 * pairs, 2 * pairs),
                     "O": (0, whole), "ml": zero}
            peak = max(2 * rows_q * d + products, 4 * n, 4 * rows_q * d + 2 * rows_q * rows_k + 2 * rows_k * d)
        else:
            if schedule == "keysOutside":
                unfinished = rows_q * tiles - n  # rows written after one tile of keys and read before the next
                moved = {"Q": (again_q, 0), "K": (whole, 0), "V": (whole, 0), "S": zero, "P": zero,
                         "O": (4 * d * unfinished, 4 * d * unfinished + whole), "ml": (8 * unfinished, 8 * unfinished)}
            else:
                moved = {"Q": (whole, 0), "K": (again_k, 0), "V": (again_k, 0), "S": zero, "P": zero, "O": (0, whole), "ml": zero}
            peak = 6 * rows_q * d + 2 * rows_k * d + products + 8 * rows_q
        return moved, peak

    def test_counters(self):
        shapes = itertools.product([(128, 128), (128, 64), (64, 128), (64, 64)], [1, 2, 4, 8], [64, 128], [False, True])
        problems = [{"n": max(rows) * count, "rowsQ": rows[0], "rowsK": rows[1], "d": d, "causal": causal} for rows, count, d, causal in shapes]
        cases: list[Any] = [[schedule, p] for schedule in ("naive", "keysOutside", "queriesOutside") for p in problems]
        results = run_script("""
          const { walk } = flashbookFigures.attention_tiles_ch03.model;
          return data.map(([schedule, p]) => {
            const w = walk(schedule, p), moves = (s) => [...s.read.values(), ...s.written.values()].reduce((a, b) => a + b, 0);
            return { counters: w.counters, peak: w.peak, moved: w.moved, moves: w.steps.reduce((a, s) => a + moves(s), 0) };
          });""", data=cases)
        for (schedule, p), result in zip(cases, results):
            with self.subTest(schedule=schedule, **p):
                moved, peak = self.closed_forms(schedule, p)
                self.assertEqual({t: (c["read"], c["written"]) for t, c in result["counters"].items()}, moved)
                total = sum(map(sum, moved.values()))
                self.assertEqual([result["moved"], result["moves"], result["peak"]], [total, total, peak])


class RingPhases(unittest.TestCase):
    """Compares the model with the simulator's runs, and also the parity for which each warp waits."""

    def test_runs(self):
        results = run_script("""
          const { runOf, barriersAt, actorAt, sentence } = flashbookFigures.ring_phases.model, data = flashbookData.ring_phases;
          return data.runs.map(({ stages, consumers, landing, fault }) => {
            const run = runOf(data, { stages, consumers, landing, fault }), last = run.events.length, wrong = [];
            const asked = (e, k) => actorAt(run, e.who, k).wish;
            run.events.forEach((e, k) => {
              if (e.kind !== 'P') return;
              const before = actorAt(run, e.who, k), wish = asked(e, k);
              if (before.at === 'reads' && run.fault === 'missing release') return;
              if (before.at !== 'waits' || wish.stage !== e.stage || wish.barrier[0] !== e.barrier || wish.parity === e.phase % 2) wrong.push(k);
            });
            const end = ['p', ...Array(run.warps).keys()].map((who) => actorAt(run, String(who), last));
            return { stages, consumers, fault, last, wrong, ends: end.map((a) => a.at), wishes: end.map((a) => a.wish), report: run.report,
                     barriers: barriersAt(run, last), said: sentence(run, last) };
          });""")
        self.assertEqual(len(results), 72)
        for result in results:
            with self.subTest(**{key: result[key] for key in ("stages", "consumers", "fault")}):
                self.assertEqual(result["wrong"], [])
                if result["fault"] == "none":
                    self.assertEqual((set(result["ends"]), result["report"]), ({"done"}, ""))
                    self.assertEqual(sum(b["phase"] for b in result["barriers"]["empty"]), 6)
                    continue
                self.assertEqual(set(result["ends"]), {"waits"})
                self.assertIn("deadlock", result["said"])
                producer, warp = result["wishes"][0], result["wishes"][1]
                self.assertRegex(result["report"], rf"warp 0, lane 0: mbarrier_wait .* empty\[{producer['stage']}\] for parity {producer['parity']}")
                self.assertRegex(result["report"], rf"lanes 0-31: mbarrier_wait .* full\[{warp['stage']}\] for parity {warp['parity']}")


class Swizzle(unittest.TestCase):
    CHAPTER = FIGURES.parents[1] / "chapters" / "04_flash_attention_2"

    def test_counts_are_those_of_the_traced_kernels(self):
        """The appendix has the simulator's counts of requests at d = 256, for step 1 and for the steps that swizzle."""
        counted = run_script("""
          const { layouts, parse, request, wavefronts } = flashbookFigures.swizzle.model;
          return data.map(([layout, access, step]) => {
            const cost = wavefronts(request(access, step, parse(layouts[layout][1]), 512));
            return `${cost.waves.length} (${cost.fewest})`;
          });""", data=[[layout, access, step] for step in range(16) for layout, access in
                        [("plain", "qk_plain"), ("plain", "v_plain"), ("plain", "copy"),
                         ("swizzled", "ldmatrix"), ("swizzled", "ldmatrix_k"), ("swizzled", "trans"), ("swizzled", "copy")]])
        table = re.search(r"<!-- table conflicts -->(.*?)<!-- /table -->", (self.CHAPTER / "appendix.md").read_text(encoding="utf-8"), re.DOTALL)
        assert table
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[1].strip().splitlines()[2:]]
        plain, swizzled = rows[0][1:4], rows[1][1:4]
        for step in range(16):
            self.assertEqual(counted[7 * step:7 * step + 7], [*plain, swizzled[0], swizzled[0], swizzled[1], swizzled[2]])


class Layouts(unittest.TestCase):
    def test_a_products_reads_are_the_addresses_of_its_elements(self):
        """Compares chapter 5's formula for the address of an element with what the simulator's tensor cores read."""
        def address(row, column):
            panel, inside = divmod(column, 64)
            return 16384 * panel + 128 * row + (inside // 8 ^ row % 8) * 16 + inside % 8 * 2

        layouts = json.loads((FIGURES / "hopper_layouts.json").read_text(encoding="utf-8"))
        for name, product_of in (("k", lambda row, column: column // 16), ("v", lambda row, column: row // 16)):
            reads = [set(offsets) for offsets in layouts[name]]
            for row, column in itertools.product(range(128), repeat=2):
                piece = address(row, column) // 16 * 16
                self.assertEqual([n for n, offsets in enumerate(reads) if piece in offsets], [product_of(row, column)])
        self.assertEqual([address(11, 80), address(5, 24), address(20, 70)], [17808, 736, 19020])  # in chapter 5's texts


class Sectors(unittest.TestCase):
    def test_counts_are_those_of_the_traced_kernels(self):
        """One line of textbook_scores has two loads; K's is the more expensive."""
        shape, counted, lines = run_script("""
          const { ask } = flashbookFigures.sectors.model, { head_dim, seqlen, lines } = flashbookData.sectors;
          const all = [...Array(16).keys()].map((c) => data.map((name) => ask(name, { e: 2, d: head_dim, c }, 32).sectors.size));
          return [[head_dim, seqlen], all, lines];""", data=["textbook_k", "textbook_q", "textbook_softmax", "coalesced", "tiled"])
        self.assertEqual(shape, [64, 64])
        traced = [line["sectors"] / line["requests"] for line in lines]
        self.assertEqual([line["kernel"] for line in lines], ["textbook_scores"] * 2 + ["textbook_softmax"] * 3 + ["coalesced_scores"] * 2 + ["tiled_scores"])
        for one in counted:
            self.assertEqual(one, [*traced[:3], traced[5], traced[7]])


class FaultTraces(unittest.TestCase):
    def test_the_runs_part_and_one_goes_wrong(self):
        """The runs differ from the first difference on; the simulator reports the fault in only one, and the steps lead there."""
        results = run_script("""
          const { traceOf, stepsOf } = flashbookFigures.fault_ch03.model;
          return flashbookData.timelines.steps.map(([name]) => {
            const trace = traceOf(flashbookData[`fault_${name.slice(0, 4)}`], name.slice(5)), { good, broken, first } = trace;
            const faults = (rows) => rows.flatMap((event, k) => event.isFault ? [k] : []);
            return { name, first, steps: stepsOf(trace), good: faults(good), broken: faults(broken), same: JSON.stringify(good[first]) === JSON.stringify(broken[first]) };
          });""")
        recorded = {result["name"] for result in results}
        self.assertLessEqual({step.name for chapter in (5, 6, 9) for step in steps.of(chapter)}, recorded)
        for result in results:
            with self.subTest(step=result["name"]):
                self.assertFalse(result["same"])
                self.assertEqual(result["good"], [])
                self.assertIn(result["broken"][0], result["steps"])
                self.assertIn(result["first"], result["steps"])
                self.assertGreater(result["first"], 0)

    def test_an_address_leads_to_a_step_and_to_its_report(self):
        [shown, said] = run_script("""
          history.replaceState(null, '', '#timelines?slug=ch06/promoted_sums&at=report');
          const host = document.createElement('div');
          document.body.append(host);
          flashbookFigures.timelines(host, null);
          return [host.querySelector('.planted').textContent, host.querySelector('[aria-live]').textContent];""")
        self.assertIn("./flashbook trace 06 -- --step promoted_sums", shown)
        self.assertRegex(said, "With the fault: .*the simulator reports: deadlock")


class Pages(unittest.TestCase):
    # Opens a figure in a box, steps through it forwards and backwards, and reports what a reader would notice.
    VISIT = """
      const wait = (ms) => new Promise((done) => setTimeout(done, ms));
      const visit = async (name, width, settings, plays) => {
        if (plays) history.replaceState(null, '', ' ');
        const box = document.createElement('div');
        box.style.width = width + 'px';
        const host = document.createElement('div');
        box.append(host);
        document.body.append(box);
        flashbookFigures[name](host, null);
        const part = (selector) => host.querySelector(selector);
        for (const [key, value] of Object.entries(settings)) {
          const node = part(`[data-setting=${key}]`);
          node.value = value;
          node.dispatchEvent(new Event(node.tagName === 'SELECT' ? 'change' : 'input'));
        }
        await wait(50);
        const button = (action) => part(`[data-action=${action}]`);
        const heights = new Set(), sentences = [], seen = { overflow: 0 };
        const look = () => {
          heights.add(Math.round(host.getBoundingClientRect().height));
          sentences.push(part('[aria-live]').textContent);
          seen.overflow = Math.max(seen.overflow, host.scrollWidth - host.clientWidth);
          if (/NaN|undefined|null/.test(host.textContent.replace(/(is|be) NaN/g, ''))) throw new Error('not a number in: ' + host.textContent);
        };
        look();
        seen.unnamed = [...host.querySelectorAll('button,input,select')].filter((n) => !(n.textContent || n.getAttribute('aria-label') || n.closest('label'))).length;
        seen.last = { text: host.textContent, ...host.dataset };
        if (!button('next')) { box.remove(); return seen; }
        seen.backAtStart = button('back').disabled;
        for (let guard = 0; !button('next').disabled && guard < 500; ++guard) { button('next').click(); look(); }
        seen.last = { text: host.textContent, step: part('input[type=range]').value, ...host.dataset };
        if (plays) {
          button('next').dispatchEvent(new Event('keyup', { bubbles: true }));
          await wait(250);
          seen.address = location.hash;
        }
        for (let guard = 0; !button('back').disabled && guard < 500; ++guard) { button('back').click(); look(); }
        seen.again = sentences[0] === sentences[sentences.length - 1];
        if (plays) {  // the slowest part
          button('play').click();
          seen.playing = [button('play').textContent, part('[aria-live]').getAttribute('aria-live')];
          await wait(3500);
          seen.played = Number(part('input[type=range]').value);
          if (button('play').textContent === 'Pause') button('play').click();  // it may have finished
          button('play').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft', bubbles: true }));
          seen.afterArrow = Number(part('input[type=range]').value);
        }
        button('start').click();
        seen.started = part('input[type=range]').value;
        if (plays) {  // a new figure opened with the last step's address shows that step
          history.replaceState(null, '', seen.address);
          flashbookFigures[name](host, null);
          seen.opened = part('input[type=range]').value;
          history.replaceState(null, '', ' ');
        }
        seen.motion = getComputedStyle(part('.bar') || host).transitionDuration;
        seen.heights = heights.size;
        seen.sentences = sentences.length;
        box.remove();
        return seen;
      };"""

    CHOICES: ClassVar[dict[str, list[dict[str, Any]]]] = {
        **{f"fault_ch{chapter}": [{}] for chapter in ("01", "03", "04", "06", "07", "08")},
        "timelines": [{}, {"slug": "ch08/boxes"}],
        "online_softmax": [{}, {"block": 1}, *({"preset": k} for k in range(1, 6)), {"scores": "-1.25, 3; 2 2 -inf 0.001", "block": 4}],
        "attention_tiles_ch03": [{}, {"count": 8, "d": 256},
                                 *({"schedule": s, "causal": c, "tiles": t} for s in ("naive", "keysOutside", "queriesOutside")
                                   for c, t in (("no", "128x128"), ("yes", "128x64"), ("yes", "64x128")))],
        "ring_phases": [{}, {"stages": 1, "landing": "seed 2"}, {"stages": 3, "consumers": 2, "fault": "missing release"}, {"fault": "wrong first parity"}],
        "sectors": [{}, {"stride": 8}, {"offset": 1}],
        "sectors_ch01": [{}, {"pattern": "textbook_softmax"}, {"pattern": "tiled", "type": 4, "c": 2}, {"pattern": "coalesced", "c": 1}],
        "swizzle": [{}, {"layout": "swizzled", "bytes": 256}, {"access": "v_plain", "bytes": 512}, {"formula": "row * 144 + piece * 16", "step": 3}],
    }
    seen: ClassVar[dict[str, list[dict[str, Any]]]]

    @classmethod
    def visit(cls, visits, *flags):
        return run_script(cls.VISIT + "const all = []; for (const v of data) all.push(await visit(...v)); return all;", *flags, data=visits)

    @classmethod
    def setUpClass(cls):
        """Uses one browser for all figures, in both widths."""
        visits = [[name, width, setting, width == 960 and setting == settings[0]]
                  for name, settings in cls.CHOICES.items() for width in (960, 358) for setting in settings]
        results = cls.visit(visits)
        cls.seen = {name: [seen for visit, seen in zip(visits, results) if visit[0] == name] for name in cls.CHOICES}

    def test_every_figure_is_visited(self):
        self.assertEqual(sorted(self.CHOICES), sorted(NAMES))

    def test_buttons_keys_and_addresses(self):
        for name, visits in self.seen.items():
            for number, seen in enumerate(visits):
                with self.subTest(figure=name, visit=number):
                    self.assertLessEqual(seen["overflow"], 0, "the figure is wider than its container")
                    self.assertEqual(seen["unnamed"], 0)
                    if "step" not in seen["last"]:
                        continue
                    last = int(seen["last"]["step"])
                    self.assertTrue(seen["backAtStart"])
                    self.assertEqual(seen["heights"], 1, "the figure changes its height between two steps")
                    self.assertTrue(seen["again"], "stepping back does not undo stepping forward")
                    self.assertEqual(seen["started"], "0")
                    self.assertEqual(seen["sentences"], 2 * last + 1)
                    if "playing" in seen:
                        self.assertEqual(seen["playing"], ["Pause", "off"])
                        self.assertGreaterEqual(seen["played"], min(2, last))
                        self.assertEqual(seen["afterArrow"], seen["played"] - 1)
                        self.assertIn(f"#{name}?", seen["address"])
                        self.assertEqual(int(seen["opened"]), last, "the address does not restore the state that it was written for")

    @staticmethod
    def weight(names):
        """Returns the bytes that a page loads for these figures."""
        scripts = {script for name in names for script in SCRIPTS_OF.get(name, [])}
        return sum((INTERACTIVE / script).stat().st_size for script in scripts) + sum((FIGURES / f"{name}.svg").stat().st_size for name in names)

    def test_weight(self):
        """All figures are below 1.5 MB, and those of one page below 320 KB before a reader starts them."""
        self.assertLess(sum(file.stat().st_size for file in SCRIPTS), 1_500_000)
        for page in (FIGURES.parents[1]).glob("chapters/*/README.md"):
            names = set(re.findall(r"figures/(\w+)\.svg\)", page.read_text(encoding="utf-8")))
            self.assertLess(self.weight(names), 320_000, page.parent.name)

    def test_reduced_motion(self):
        visits = [["online_softmax", 358, {}, False]]
        self.assertNotEqual(self.visit(visits)[0]["motion"], "0s")
        self.assertEqual(self.visit(visits, "--force-prefers-reduced-motion")[0]["motion"], "0s")

    def test_without_javascript(self):
        images = "".join(f'<img src="{(FIGURES / f"{name}.svg").as_uri()}" alt="{name}">' for name in NAMES)
        sizes = run_script("""
          const frame = document.createElement('iframe');
          frame.sandbox = 'allow-same-origin';  // without allow-scripts, so JavaScript is off
          frame.srcdoc = data + "<script>document.body.replaceChildren('replaced')</scr" + 'ipt>';
          const loaded = new Promise((done) => { frame.onload = done; });
          document.body.append(frame);
          await loaded;
          return [...frame.contentDocument.images].map((image) => [image.naturalWidth, image.naturalHeight]);""", data=images)
        self.assertEqual(len(sizes), len(NAMES))
        for width, height in sizes:
            self.assertTrue(360 <= width <= 560 and height > 80)


if __name__ == "__main__":
    if not CHROMIUM:
        print("skipped: no Chromium here; install it with: apt-get install chromium")
        sys.exit(77)
    unittest.main()
