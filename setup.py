"""What pyproject.toml cannot say: a built package carries copies of the suites as aisp_mcp/_suites."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SUITES = "benchmarks"


class BuildWithSuites(build_py):
    """Copy the suites beside the modules; an editable install reads them in the checkout instead."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "aisp_mcp", "_suites")
            shutil.rmtree(target, ignore_errors=True)  # an earlier build's leftovers
            shutil.copytree(SUITES, target, ignore=shutil.ignore_patterns("__pycache__"))


setup(cmdclass={"build_py": BuildWithSuites})
