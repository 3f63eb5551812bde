"""ReFrame test around `aisp bench run`: the judge's verdicts as sanity, candidate over baseline as performance.

    reframe -c examples/cluster/reframe_aisp.py -r --system=SYSTEM

ReFrame submits, aisp measures and judges in the job. Set the modules or the environment that bring `aisp` onto PATH.
"""

import json

import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class AispBenchmarks(rfm.RunOnlyRegressionTest):
    descr = "Judged speed-ups of one target"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    target = parameter(["ch07:row_sum"])  # noqa: F821 - ReFrame puts it into the class namespace
    preset = variable(str, value="default")  # noqa: F821 - set with -S preset=release
    executable = "aisp"
    exclusive_access = True
    time_limit = "30m"

    @run_before("run")  # noqa: F821
    def command(self):
        self.executable_opts = ["bench", "run", "--targets", self.target, "--preset", self.preset, "--json"]
        self.env_vars = {"AISP_HOME": self.stagedir + "/runs-of-aisp"}

    @sanity_function  # noqa: F821
    def passed(self):
        """The exit code says the same: 0 passed, 3 not passed, 4 not decided, 1 and 2 errors."""
        answer = self.answer()
        return sn.assert_true(answer["status"] == "ok" and answer["result"]["passed"], msg=str(answer.get("error")))

    @run_before("performance")  # noqa: F821
    def ratios(self):
        """One figure per judged candidate: baseline time over candidate time."""
        if self.is_dry_run():
            return
        rulings = self.answer()["result"]["rulings"]
        self.perf_variables = {
            one["target"]: sn.make_performance_function(sn.defer(one["ratio"]), "x") for one in rulings if one["ratio"]
        }

    def answer(self):
        with open(self.stagedir + "/" + str(self.stdout), encoding="utf-8") as file:
            return json.load(file)
