#!/usr/bin/env python3
"""Tests what the simulator records about kernels (common/simulator/events): the events and the page.
The argument is the folder of the programs."""
import html
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "common" / "simulator" / "events")]

import page

from tests.docs.figures_test import CHROMIUM, browse

PROGRAMS = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else ROOT / "build" / "sim" / "bin"


def recorded(folder, program, *arguments, blocks="0-1"):
    """Returns the trace of a program's kernels."""
    file = Path(folder) / "events.json"
    environment = {**os.environ, "FLASHBOOK_SIM_EVENTS": str(file), "FLASHBOOK_SIM_EVENTS_BLOCKS": blocks}
    subprocess.run([PROGRAMS / program, *arguments], env=environment, capture_output=True, check=True, timeout=120)
    return page.read(str(file))


def test_of(folder, program, name):
    return recorded(folder, program, f"--gtest_filter={name}")["launches"]


def told(block):
    """Returns [(who, what happens to what, line)] of a block."""
    return [(event.who, f"{event.what} {event.object}".strip(), event.stack[0].line if event.stack else None) for event in block["events"]]


class Events(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def test_a_small_kernel(self):
        """`reverse` has a store, a barrier, a load, a barrier and two stores; the last warp to arrive at a barrier
        continues first."""
        (launch,) = test_of(self.folder, "trace", "TraceRaces.BothBarriersAreEnough")
        text = (ROOT / "tests/simulator/trace_test.cu").read_text(encoding="utf-8").splitlines()
        store = next(i for i, line in enumerate(text, 1) if "kStoreLine = __LINE__ + 3" in line) + 3
        first, second = "warp 0", "warp 1"

        def stretch(who, *what):
            return [(who, name, store + line if line is not None else None) for name, line in what]

        self.assertEqual(told(launch["blocks"][0]), [
            *stretch(first, ("starts", None), ("store", 0), ("__syncthreads barrier 0", 1)),
            *stretch(second, ("starts", None), ("store", 0), ("__syncthreads barrier 0", 1), ("all have arrived barrier 0", 1)),
            *stretch(second, ("load", 2), ("__syncthreads barrier 0", 3)),
            *stretch(first, ("load", 2), ("__syncthreads barrier 0", 3), ("all have arrived barrier 0", 3)),
            *stretch(first, ("store", 4), ("store", 5), ("exits", None)),
            *stretch(second, ("store", 4), ("store", 5), ("exits", None)),
        ])
        self.assertEqual({event.lanes for event in launch["blocks"][0]["events"]}, {0xffffffff})
        self.assertIn("1 request of 4 bytes per lane, device memory: 4 sectors", [event.detail for event in launch["blocks"][0]["events"]])
        self.assertEqual((launch["error"], [block["block"] for block in launch["blocks"]]), ("", [0, 1]))

    def test_a_deadlock_is_marked_and_shows_who_waits(self):
        (launch,) = test_of(self.folder, "simulator", "MbarrierTest.DeadlockNamesBarrierParityAndWhatIsMissing")
        *before, last = launch["blocks"][0]["events"]
        self.assertEqual((last.kind, last.who, last.detail), ("fault", "block", launch["error"]))
        self.assertIn("deadlock in block (0,0,0)", last.detail)
        self.assertEqual((before[-1].kind, before[-1].who, before[-1].object), ("waits", "warp 0", "mbarrier empty[0]"))
        self.assertIn("for parity 0: it is in phase 0 (parity 0), 1 of 2 arrivals pending", before[-1].detail)

    def test_lanes_that_are_stuck_in_a_collective_are_shown(self):
        (launch,) = test_of(self.folder, "simulator", "Barriers.ADeadlockNamesWarpsLinesAndBarriers")
        stuck = [event for block in launch["blocks"] for event in block["events"] if event.detail.startswith("stuck")]
        self.assertIn("stuck with mask 0xffffffff: lanes 0-15 missing", [event.detail for event in stuck])
        for event in stuck:
            self.assertEqual((event.kind, len(event.stack)), ("waits", 1))
            self.assertIn(f"{event.what} at {Path(event.stack[0].file).name}:{event.stack[0].line}", launch["error"])

    def test_a_race_is_marked_at_the_access_that_makes_it(self):
        (launch,) = test_of(self.folder, "trace", "TraceRaces.AMissingBarrierBeforeTheLoad")
        events = launch["blocks"][0]["events"]
        faults = [i for i, event in enumerate(events) if event.kind == "fault"]
        self.assertEqual(len(faults), 2)  # one of a warp that reads before the store, one of a warp that stores after the read
        for i in faults:
            self.assertRegex(events[i].detail, r"data race in block 0.*\n.*\n.*\n *nothing orders the two: look for a missing barrier")
            self.assertEqual(events[i].who, "warp 1")
            second = re.findall(r"at trace_test.cu:(\d+)", events[i].detail)[1]
            self.assertEqual(str(events[i].stack[0].line), second)

    def test_a_fault_outside_of_the_blocks_says_so(self):
        trace = recorded(self.folder, "trace", "--gtest_filter=TraceRaces.AMissingBarrierBeforeTheLoad", blocks="7-9")
        self.assertEqual([launch["blocks"] for launch in trace["launches"]], [[]])
        done = subprocess.run([sys.executable, page.__file__, Path(self.folder) / "events.json", "--html", Path(self.folder) / "x.html"],
                              capture_output=True, text=True, check=False)
        self.assertIn("--blocks 0", done.stderr)
        for error, number in (("data race in block 7 on", 7), ("deadlock in block (1,2,1): every", 19), ("out of memory", None)):
            self.assertEqual(page.block_of(error, [3, 4, 2]), number)

    def test_bad_input_names_the_cure(self):
        bad = Path(self.folder) / "bad.json"
        bad.write_text("{", encoding="utf-8")
        for arguments, cure in (([bad, "--html", "x"], "FLASHBOOK_SIM_EVENTS"), ([bad], "--html"), ([bad.parent / "none", "--html", "x"], "FLASHBOOK_SIM_EVENTS")):
            done = subprocess.run([sys.executable, page.__file__, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(cure, done.stderr)
        for name, value in (("EVENTS", "/nowhere/x"), ("EVENTS_BLOCKS", "1-0"), ("EVENTS_BLOCKS", "all")):
            environment = {**os.environ, "FLASHBOOK_SIM_EVENTS": str(bad), f"FLASHBOOK_SIM_{name}": value}
            done = subprocess.run([PROGRAMS / "trace", "--gtest_filter=TraceRaces.BothBarriersAreEnough"], env=environment, capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stdout + done.stderr, f"FLASHBOOK_SIM_{name}={value}: .*(name one in a directory that exists|as in 0-1)")


@unittest.skipUnless(CHROMIUM, "there is no Chromium")
class Page(unittest.TestCase):
    def run_in(self, trace, script):
        """Returns the result of an async function's body in a trace's page; errors fail the test."""
        text = page.html(trace)
        self.assertNotRegex(text, r"https?://(?!www\.w3\.org)")  # the page works offline
        text = text.replace("<head>", "<head><script>const errors = []; addEventListener('error', (e) => errors.push(e.message));</script>", 1)
        text = text.replace("</body>", f"""<script>(async () => {{ {script} }})().catch((e) => {{ errors.push(String(e)); }}).then((value) => {{
          const pre = document.createElement('pre');
          pre.id = 'result';
          pre.textContent = JSON.stringify({{ value, errors }});
          document.body.replaceChildren(pre);
        }});</script></body>""", 1)
        found = re.search(r'<pre id="result">(.*?)</pre>', browse(text), re.DOTALL)
        assert found, "the page's script never finished"
        result = json.loads(html.unescape(found[1]))
        self.assertEqual(result["errors"], [])
        return result["value"]

    def test_stepping_filters_search_and_faults(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = recorded(folder, "trace", "--gtest_filter=TraceRaces.AMissingBarrierBeforeTheLoad")
        found = self.run_in(trace, """
          const { data, model } = flashbookTrace, $ = (id) => document.getElementById(id);
          const key = (name) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
          const set = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event('input')); };
          const seen = {}, now = () => $('now').textContent, line = () => document.querySelector('#code .here')?.textContent;
          key('ArrowRight');
          seen.first = [now(), line(), location.hash];
          key('ArrowLeft');
          seen.back = [now(), location.hash, $('back').disabled];
          key('f');
          seen.fault = [now(), line(), document.querySelector('#now .fault') !== null];
          key('End');
          seen.end = [now(), $('on').disabled];
          set('warp', '1');
          set('kind', String(data.groups.indexOf('barriers')));
          seen.filtered = [$('count').textContent, location.hash];
          key('Home');
          seen.home = now();
          set('warp', ''); set('kind', ''); set('text', 'trace_test.cu');
          seen.rows = [...document.querySelectorAll('#events button')].length;
          set('text', 'no such thing');
          seen.none = document.querySelector('#events').textContent;
          set('text', '');
          $('find').value = 'device memory';
          $('find').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' }));
          seen.search = now();
          location.hash = '#event=3&warp=0';
          await new Promise((resolve) => setTimeout(resolve, 50));
          seen.hash = [now(), $('warp').value];
          seen.wide = document.documentElement.scrollWidth <= innerWidth;
          seen.labels = [...document.querySelectorAll('button, select, input')].filter((e) => !e.textContent.trim() && !e.getAttribute('aria-label') && !e.closest('label')).length;
          return seen;""")
        self.assertRegex(found["first"][0], r"^warp 0: store")
        self.assertIn("event=1", found["first"][2])
        self.assertEqual(found["back"], ["warp 0: starts", "", True])
        self.assertRegex(found["fault"][0], r"(?s)^warp 1, lane 0: fault.*data race in block 0.*missing barrier")
        self.assertTrue(found["fault"][1] and found["fault"][2])
        self.assertEqual(found["end"][1], True)
        self.assertIn("warp=1&kind=1", found["filtered"][1])
        self.assertRegex(found["home"], r"^warp 1: __syncthreads waits at barrier 0 – 64 of 64 threads have arrived")
        self.assertGreater(found["rows"], 8)
        self.assertEqual(found["none"], "No event passes the filters.")
        self.assertIn("device memory", found["search"])
        self.assertRegex(found["hash"][0], r"^warp 0: ")
        self.assertEqual((found["hash"][1], found["wide"], found["labels"]), ("0", True, 0))

    def test_state_of_warps_barriers_and_tiles(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = recorded(folder, "simulator", "--gtest_filter=MbarrierTest.DeadlockNamesBarrierParityAndWhatIsMissing")
        end, start, shown = self.run_in(trace, """
          const { data, model } = flashbookTrace, block = data.launches[0].blocks[0];
          const at = (n) => { const s = model.state(block, n); return { warps: s.warps.map((parts) => parts.map((p) => [p.e.kind, p.e.object, p.goes, p.lanes >>> 0])), barriers: [...s.barriers].map(([name, b]) => [name, b.text]) }; };
          document.getElementById('last').click();
          return [at(model.count(block) - 1), at(2), document.getElementById('state').textContent];""")
        self.assertEqual(end["warps"], [[["waits", "mbarrier empty[0]", False, 0xffffffff]], [["exits", "", False, 0xffffffff]]])
        self.assertEqual(dict(end["barriers"])["mbarrier empty[0]"], "phase 0 (parity 0), 1 of 2 arrivals pending, 0 bytes pending")
        self.assertEqual(start["warps"], [[["waits", "barrier 0", False, 0xffffffff]], []])
        self.assertIn("warp 0mbarrier_wait waits at empty[0] for parity 0", shown)


if __name__ == "__main__":
    unittest.main()
