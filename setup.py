"""What pyproject.toml cannot say: a built package carries copies of the suites and of the documentation's pages."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SUITES, PAGES = ("benchmarks", "labs"), ("*.md", "tools/*.md")


class BuildWithContent(build_py):
    """Copy both into the package, as _suites and _docs; an editable install reads them in the checkout instead."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            suites, pages = (Path(self.build_lib, "aisp_mcp", name) for name in ("_suites", "_docs"))
            for target in (suites, pages):
                shutil.rmtree(target, ignore_errors=True)  # an earlier build's leftovers
            for name in SUITES:
                shutil.copytree(name, suites / name, ignore=shutil.ignore_patterns("__pycache__"))
            for page in (path for pattern in PAGES for path in Path("docs").glob(pattern)):
                copy = pages / page.relative_to("docs")
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(page, copy)


setup(cmdclass={"build_py": BuildWithContent})
