"""The steps of the chapters, read from the chapters' own tables (kSteps in host/chapter.cu).

A step's slug names it everywhere. Its number is its place in the table, for text that readers see."""
import dataclasses
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROW = re.compile(r'(?:\b(?:row|step)(?:<(?:[^<>()]|<[^<>]*>)*>)?\(|\.slug =)\s*"(\w+)",\s*(?:\.name = )?"([^"]+)"')


@dataclasses.dataclass(frozen=True)
class Step:
    chapter: int
    number: int
    slug: str
    title: str  # its current one; results have the title from when they were measured

    @property
    def name(self) -> str:
        """The step as results name it: ch04/two_stages."""
        return f"ch{self.chapter:02}/{self.slug}"


@functools.cache
def of(chapter: int) -> tuple[Step, ...]:
    """Returns a chapter's steps in order; empty if there is no such chapter."""
    return tuple(Step(chapter, number, slug, title) for file in ROOT.glob(f"chapters/{chapter:02}_*/host/chapter.c*")
                 for number, (slug, title) in enumerate(ROW.findall(file.read_text(encoding="utf-8").partition("kSteps[] = {")[2]), 1))


def find(chapter: int, step: str) -> Step | None:
    """Returns the step with this slug, or None."""
    return next((one for one in of(chapter) if one.slug == step), None)


def names(chapter: int) -> list[str]:
    """Returns ch04/split_q, ...: the names of a chapter's steps in order."""
    return [step.name for step in of(chapter)]
