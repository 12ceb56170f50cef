"""The chapters' modules (docs/web): what pages need to run kernels."""
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docs.tools import book
from docs.tools.book import Page
from docs.web import planted

WEB = book.ROOT / "docs" / "web"
BUILT = book.ROOT / "build" / "web" / "modules"
OWN_FILES = ("panel.js", "worker.js")


def built(folder: Path = BUILT) -> dict[str, dict[str, Any]]:
    """{a chapter's number: what its module says of itself}, of those that are made of the sources as they are now."""
    found = {}
    for file in sorted(folder.glob("[0-9][0-9].json")):
        about = json.loads(file.read_text(encoding="utf-8"))
        chapter = next(book.ROOT.glob(f"chapters/{file.stem}_*"), None)
        if chapter and planted.digest(chapter.name) == about["digest"]:
            found[file.stem] = about
    return found


def why_none(folder: Path = BUILT) -> str:
    """What is to be said where there is not a module for each chapter that can have one."""
    if not shutil.which("emcc"):
        return "emscripten is not installed: pages have no Run"
    have = built(folder)
    chapters = re.findall(r"^foreach\(chapter (.*)\)$", (WEB / "CMakeLists.txt").read_text(encoding="utf-8"), re.MULTILINE)[0].split()
    lacking = [chapter[:2] for chapter in chapters if chapter[:2] not in have]
    command = "cmake --preset web && cmake --build --preset web"
    return f"the pages of chapters {', '.join(lacking)} have no Run: {command} builds their modules" if lacking else ""


def panel(page: Page, modules: dict[str, dict[str, Any]]) -> str:
    """Where the page's Run will be: nothing without JavaScript."""
    number = page.chapter[:2]
    if page.kind != "kernel" or number not in modules or "/host/" in page.source or "/serving/" in page.source:
        return ""
    step = re.match(r"step(\d+)", page.path.name)
    return (f'<div class="interactive" data-module="{number}" data-file="{page.source}"'
            f'{f""" data-step="{step[1]}" """.rstrip() if step else ""} hidden></div>')


def scripts(page: Page | None, modules: dict[str, dict[str, Any]]) -> list[str]:
    """What that page loads, from the site's root."""
    return [f"web/{page.chapter[:2]}_data.js", "web/panel.js"] if page and panel(page, modules) else []


def write(out: Path, pages: Sequence[Page], modules: dict[str, dict[str, Any]], folder: Path = BUILT) -> None:
    """The modules, and what pages know of them, into out/web."""
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
        data = {"steps": about["steps"], "faults": about["faults"], "places": places}
        text = f"(window.flashbookModules ||= {{}})[{json.dumps(number)}] = {json.dumps(data)};\n"
        (out / "web" / f"{number}_data.js").write_text(text, encoding="utf-8")
