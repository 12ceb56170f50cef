"""The chapters' modules (docs/web), which run kernels in the pages."""
import html
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import steps
from docs.tools import book
from docs.tools.book import Page
from docs.web import planted

WEB = book.ROOT / "docs" / "web"
BUILT = book.ROOT / "build" / "web" / "modules"
OWN_FILES = ("panel.js", "worker.js")


def built(folder: Path = BUILT) -> dict[str, dict[str, Any]]:
    """Returns {chapter number: description of its module}, for modules built from the current sources."""
    found = {}
    for file in sorted(folder.glob("[0-9][0-9].json")):
        about = json.loads(file.read_text(encoding="utf-8"))
        chapter = next(book.ROOT.glob(f"chapters/{file.stem}_*"), None)
        if chapter and planted.digest(chapter.name) == about["digest"]:
            found[file.stem] = about
    return found


def why_none(folder: Path = BUILT) -> str:
    """Returns a message if some chapters that could have a module have none."""
    if not shutil.which("emcc"):
        return "emscripten is not installed: pages have no Run"
    have = built(folder)
    chapters = re.findall(r"^foreach\(chapter (.*)\)$", (WEB / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE)[0].split()
    lacking = [chapter[:2] for chapter in chapters if chapter[:2] not in have]
    command = "cmake --preset web && cmake --build --preset web"
    return f"the pages of chapters {', '.join(lacking)} have no Run: {command} builds their modules, with emscripten" if lacking else ""


# Pages outside chapters that have a panel: the chapter, the file whose faults are listed first, the text, and what the
# panel precedes.
OTHERS = {
    "README.md": ("05", "chapters/05_flash_attention_3/step2_specialised.cuh", "FlashAttention-3's kernels on Hopper's TMA and WGMMA: run one here, "
                  "or break one. The simulator that stands in for the GPU is compiled for your browser.", '<h2 id="two-commands"'),
}


def host(number: str, **data: str) -> str:
    """Returns the placeholder for a panel, which stays empty without JavaScript."""
    attributes = "".join(f' data-{key}="{html.escape(value)}"' for key, value in {"module": number, **data}.items())
    return f'<div class="interactive"{attributes} hidden></div>'


def with_panels(page: Page, body: str, modules: dict[str, dict[str, Any]]) -> str:
    """Returns a page's body with its panels."""
    def of_fault(found: re.Match[str]) -> str:
        number = found[1].rpartition("_")[2]
        return host(number, fault=found[1]) if any(fault["name"] == found[1] for fault in modules.get(number, {}).get("faults", [])) else ""

    body = re.sub(r'<div data-shown-fault="(\w+)"></div>\n', of_fault, body)
    if page.source in OTHERS:
        number, file, words, before = OTHERS[page.source]
        step = str(planted.number(number, "persistent"))
        return body.replace(before, host(number, file=file, step=step, words=words) + before) if number in modules else body
    number = page.chapter[:2]
    if page.kind != "kernel" or number not in modules or re.search("/host/|/serving/|/ramp_", page.source):
        return body
    name = re.match(r"step(\d+)_(\w+)", page.path.name)  # a file named after a step is identified by its slug
    shown = {"step": str(found.number if (found := steps.find(int(number), name[2])) else name[1])} if name else {}
    # After the first row, which describes the whole file.
    return body.replace("</section>", host(number, file=page.source, **shown) + "</section>", 1)


def scripts(body: str) -> list[str]:
    """Returns the files that a page with a panel loads, from the site's root."""
    numbers = sorted(set(re.findall(r'<div class="interactive" data-module="(\d\d)"', body)))
    return ["interactive/kit.js", *(f"web/{number}_data.js" for number in numbers), "web/panel.js"] if numbers else []


def write(out: Path, pages: Sequence[Page], modules: dict[str, dict[str, Any]], folder: Path = BUILT) -> None:
    """Writes the modules, and the data that pages need from them, into out/web."""
    if not modules:
        return
    (out / "web").mkdir()
    for name in OWN_FILES:
        shutil.copyfile(WEB / name, out / "web" / name)
    for number, about in modules.items():
        for file in (f"{number}.js", f"{number}.wasm"):
            shutil.copyfile(folder / file, out / "web" / file)
        others = [page for page in pages if page.kind == "kernel" and page.chapter[:2] != number]
        own = [page for page in pages if page.kind == "kernel" and page.chapter[:2] == number]
        common = [page for page in others if page.source.startswith("common/")]
        places = {page.path.name: page.url for page in [*common, *own]}
        data = {key: about[key] for key in ("steps", "masks", "keys", "of_step", "faults")} | {"number": number, "places": places}
        text = f"(window.flashbookModules ||= {{}})[{json.dumps(number)}] = {json.dumps(data)};\n"
        (out / "web" / f"{number}_data.js").write_text(text, encoding="utf-8")
