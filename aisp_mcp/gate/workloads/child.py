"""Serve rounds of a workload's calls in the Python of one commit: `python -s child.py FILE ROLE FOLDER WRITER SOURCES`.

A file of GSO has `run_test`; one of SWE-fficiency calls `timeit.repeat` with a setup; any other has `workload` and
perhaps `setup`. What a setup precedes is timed in a fork, where nothing is left of earlier calls. The fork gets copies
of the memory that a call writes to before it is timed: otherwise the kernel makes them during the call. Only the
standard library of Python 3.10 or later is needed.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import inspect
import json
import os
import runpy
import sys
import tempfile
import textwrap
import time
import timeit
import traceback
from array import array
from collections.abc import Callable
from typing import Any

BASELINE = "baseline"
NAME = "workload"
DEFAULT_NUMBER: int = timeit.default_number  # type: ignore[attr-defined]
TIMING = ("timeit.timeit", "timeit.repeat")
PAGE = os.sysconf("SC_PAGE_SIZE")
PRESENT_HERE_ALONE = 1 << 63 | 1 << 56  # bits of /proc/PID/pagemap
MADV_POPULATE_WRITE = 23  # from Linux 5.14 on


class BadWorkload(Exception):
    """The file is of none of the three forms."""


class Channel:
    """The pipes to the process that owns the clock. Messages are lines of JSON."""

    def __init__(self) -> None:
        commands, messages = (int(part) for part in os.environ.pop("AISP_ROUNDS").split(","))
        for descriptor in (commands, messages):
            os.set_inheritable(descriptor, False)
        self._commands, self._messages = os.fdopen(commands, "rb", 0), messages

    def tell(self, **message: Any) -> None:
        """Send a message."""
        os.write(self._messages, (json.dumps(message) + "\n").encode())

    def ask(self, **message: Any) -> dict[str, Any]:
        """Send a message, and wait for the answer. Forks share the pipe, so nothing is read ahead."""
        self.tell(**message)
        return self.next()

    def next(self) -> dict[str, Any]:
        """The next command; the end, if the other process is gone."""
        line = self._commands.readline()
        return json.loads(line) if line else {"end": True}

    def fail(self, error: BaseException, path: str, wrong: bool = False) -> None:
        """Report why the workload cannot be measured."""
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        where = f" in line {lines[-1]} of {os.path.basename(path)}" if lines else ""
        kind = "" if isinstance(error, BadWorkload) else f"{type(error).__name__}{where}: "
        message = f"{kind}{str(error)[:300]}"
        self.tell(problem=NAME, outcome="wrong" if wrong else "failed", message=message)
        self.tell(finished=NAME)


def timed(call: Callable[[], Any], number: int) -> tuple[float, Any]:
    """Seconds of this many calls, without the garbage collector, as timeit does; and the last result."""
    result = None
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        begin = time.perf_counter()
        for _ in range(number):
            result = call()
        return time.perf_counter() - begin, result
    finally:
        if was_enabled:
            gc.enable()


def own_memory() -> list[list[int]]:
    """Ranges of memory, [address, bytes], that this process has written to since its fork; none if the kernel does not
    tell.
    """
    ranges: list[list[int]] = []
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps, open("/proc/self/pagemap", "rb") as pagemap:
            for place, access in (line.split()[:2] for line in maps):
                begin, end = (int(address, 16) for address in place.split("-"))
                if access != "rw-p":
                    continue
                pagemap.seek(begin // PAGE * 8)
                for number, entry in enumerate(array("Q", pagemap.read((end - begin) // PAGE * 8))):
                    if entry & PRESENT_HERE_ALONE == PRESENT_HERE_ALONE:
                        address = begin + number * PAGE
                        if ranges and sum(ranges[-1]) == address:
                            ranges[-1][1] += PAGE
                        else:
                            ranges.append([address, PAGE])
    except (OSError, ValueError):
        return []
    return ranges


def copy_memory(ranges: list[list[int]]) -> None:
    """Copy these ranges, as far as they exist, from the process that this one was forked from."""
    if not ranges:
        return
    import ctypes  # not in every Python

    madvise = ctypes.CDLL(None).madvise
    for address, size in ranges:
        madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), MADV_POPULATE_WRITE)


class Workload:
    """A call that is timed. prepare: runs before every `number` calls; None if nothing must."""

    def __init__(self, call: Callable[[], Any], prepare: Callable[[], Any] | None, number: int) -> None:
        self.call, self.prepare, self.number = call, prepare, number


class Server:
    """Serves rounds until the other process has enough of them. keep: stores the first result, and says so."""

    def __init__(self, channel: Channel, path: str, keep: Callable[[Any], dict[str, Any]]) -> None:
        self.channel, self.path, self.keep = channel, path, keep
        self._written = list[list[int]]()  # memory, by a first call
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 (a first call's fork writes it)

    def serve(self, workload: Workload) -> None:
        """Calls in this process, or, if each has a setup, in forks."""
        if workload.prepare is not None:
            self.serve_forks(lambda is_first: self.unit(workload, is_first))
            return
        seconds, result = timed(workload.call, workload.number)
        command = self.channel.ask(**self._ready(seconds, units=False, **self.keep(result)))
        while not command.get("end"):
            command = self.channel.ask(elapsed=timed(workload.call, command["calls"] * workload.number)[0])

    def unit(self, workload: Workload, is_first: bool) -> None:
        """Prepare and call once."""
        begin = time.perf_counter()
        if workload.prepare is not None:
            workload.prepare()
        _, result = self.called(workload, is_first)
        if is_first:
            self.channel.tell(**self._ready(time.perf_counter() - begin, units=True, **self.keep(result)))

    def called(self, workload: Workload, is_first: bool) -> tuple[float, Any]:
        """Seconds of what is timed, and its result; but for the first time, when the other process says so."""
        if is_first:
            answer = timed(workload.call, workload.number)
            self._told.write(json.dumps(own_memory()).encode())
            self._told.flush()
            return answer
        copy_memory(self._written)
        self.channel.ask(prepared=True)
        seconds, result = timed(workload.call, workload.number)
        self.channel.ask(elapsed=seconds)
        return seconds, result

    def serve_forks(self, unit: Callable[[bool], Any]) -> None:
        """Run each unit in a fork of its own, so that nothing is kept from one to the next."""
        done, command = self._forked(unit, True), dict[str, Any]()
        self._told.seek(0)
        self._written = json.loads(self._told.read() or "[]")
        while done:
            command = self.channel.ask(settled=True) if command else self.channel.next()
            if command.get("end"):
                return
            done = self._forked(unit, False)
        raise Told

    def _forked(self, unit: Callable[[bool], Any], is_first: bool) -> bool:
        """Return True if it has ended well; otherwise it has told why not."""
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                unit(is_first)
                code = 0
            except BaseException as error:
                self.channel.fail(error, self.path, wrong=isinstance(error, AssertionError))
            finally:
                os._exit(code)
        return os.waitpid(pid, 0)[1] == 0

    def ready(self, seconds: float, **facts: Any) -> None:
        """Report that the first unit of a file that serves its own result has ended."""
        self.channel.tell(**self._ready(seconds, units=True, **facts))

    @staticmethod
    def _ready(seconds: float, **facts: Any) -> dict[str, Any]:
        return {"ready": NAME, "seconds": seconds, "digest": None, "own_clock": False, **facts}


class Ended(BaseException):
    """The measurement is over, so the rest of the file is not run."""


class Told(BaseException):
    """A fork has told the other process why it cannot go on."""


class ServedTimer(timeit.Timer):
    """timeit's class, whose calls are measured by the other process."""

    serve: Callable[[Workload], Any]

    def __init__(self, stmt: Any = "pass", setup: Any = "pass", timer: Any = None, globals: Any = None) -> None:  # noqa: ARG002
        self._names = sys.modules["__main__"].__dict__ if globals is None else globals
        self._call = self._compiled(stmt)
        self._prepare = None if setup == "pass" else self._compiled(setup)

    def _compiled(self, statement: Any) -> Callable[[], Any]:
        if callable(statement):
            return statement  # type: ignore[no-any-return]
        names = self._names
        code = compile(textwrap.dedent(str(statement)), "<timeit>", "exec")
        return lambda: exec(code, names)

    def timeit(self, number: int = DEFAULT_NUMBER) -> Any:
        return ServedTimer.serve(Workload(self._call, self._prepare, number))

    def repeat(self, repeat: int = 5, number: int = DEFAULT_NUMBER) -> Any:  # noqa: ARG002
        return self.timeit(number)

    def autorange(self, callback: Any = None) -> Any:  # noqa: ARG002
        return self.timeit(1)


def replace_timeit(serve: Callable[[Workload], Any]) -> None:
    """Let timeit's functions hand over what they would time."""
    ServedTimer.serve = staticmethod(serve)
    timeit.Timer = ServedTimer  # type: ignore[misc]


def is_gso(path: str) -> bool:
    """Return True if the file has `run_test`. Raises BadWorkload if another one times several statements."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    if any(isinstance(node, ast.FunctionDef) and node.name == "run_test" for node in tree.body):
        return True
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if (count := sum(isinstance(call, ast.Attribute) and ast.unparse(call) in TIMING for call in calls)) > 1:
        raise BadWorkload(f"the file times {count} statements: keep the one to judge")
    return False


def run_gso(path: str, role: str, folder: str, server: Server) -> None:
    """Serve a file with `run_test`, which is called anew for each unit."""
    namespace = runpy.run_path(path, run_name="aisp_workload")
    run_test = namespace["run_test"]
    takes = inspect.signature(run_test).parameters
    checked = "its own check_equivalence" if "check_equivalence" in namespace else ""

    def unit(is_first: bool) -> None:
        def serve(workload: Workload) -> Any:
            seconds, result = server.called(workload, is_first)
            returns_both = "retval" in timeit.template  # type: ignore[attr-defined]
            return (seconds, result) if returns_both else seconds

        replace_timeit(serve)
        given = {"eqcheck": role != BASELINE, "reference": role == BASELINE and is_first}
        given["prefix"] = os.path.join(folder, "gso")  # type: ignore[assignment]
        begin = time.perf_counter()
        run_test(**{name: value for name, value in given.items() if name in takes})
        if is_first:
            server.ready(time.perf_counter() - begin, checked=checked)

    server.serve_forks(unit)


def keeper(folder: str, role: str, writer: str) -> Callable[[Any], dict[str, Any]]:
    """Return a function that stores a result for the other process. writer: the file that defines how."""
    spec = importlib.util.spec_from_file_location("aisp_values", writer)
    values = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules["aisp_values"] = values
    spec.loader.exec_module(values)  # type: ignore[union-attr]

    def keep(result: Any) -> dict[str, Any]:
        if result is None:
            return {"checked": ""}
        try:
            data = values.encode(result)
        except (values.UnknownValueError, RecursionError):
            return {"checked": "", "unknown": type(result).__name__}
        with open(os.path.join(folder, role + ".answer"), "wb") as file:
            file.write(data)
        return {"checked": "the returned value"}

    return keep


def run_timed(path: str, server: Server) -> None:
    """Serve what the file hands to timeit, or its `workload`."""

    def serve(workload: Workload) -> Any:
        server.serve(workload)
        raise Ended

    replace_timeit(serve)
    try:
        namespace = runpy.run_path(path, run_name="__main__")
        if not callable(namespace.get("workload")):
            raise BadWorkload("the file times nothing with timeit, and has neither workload() nor run_test()")
        setup, workload = namespace.get("setup"), namespace["workload"]
        if inspect.signature(workload).parameters:
            if setup is None:
                raise BadWorkload("workload() takes an argument, and there is no setup() that makes it")
            made: list[Any] = []
            serve(Workload(lambda: workload(made[-1]), lambda: made.append(setup()), 1))
        serve(Workload(workload, setup, 1))
    except Ended:
        pass


def main(path: str, role: str, folder: str, writer: str, *sources: str) -> None:
    """Measure on demand, and report what happened. sources: folders of modules that may not be installed."""
    channel = Channel()
    if not channel.ask(collected=[NAME]).get("select"):
        return
    sys.argv = [path]
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    sys.path += [*sources, os.path.dirname(path)]  # last: the file may be beside the package of the working tree
    server = Server(channel, path, keeper(folder, role, writer))
    try:
        if is_gso(path):
            run_gso(path, role, folder, server)
        else:
            run_timed(path, server)
    except Told:
        return
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        channel.fail(error, path)
        return
    channel.tell(finished=NAME)
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    channel.tell(files=sorted(file for file in files if isinstance(file, str)))


if __name__ == "__main__":
    main(*sys.argv[1:])
