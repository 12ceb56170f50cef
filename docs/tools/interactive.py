"""The scripts in docs/figures/interactive and the figures that they replace."""
import re
from pathlib import Path


def scripts_of(folder: Path) -> dict[str, list[str]]:
    """Returns {figure's name: the names of its scripts, in order}: the common script, its data if there are any, then
    the script that draws it."""
    found = {}
    for file in sorted(folder.glob("*.js")):
        data = folder / f"{file.stem}_data.js"
        scripts = ["kit.js", *([data.name] if data.exists() else []), file.name]
        for name in re.findall(r"window\.flashbookFigures\.(\w+) = ", file.read_text(encoding="utf-8")):
            found[name] = scripts
    return found
