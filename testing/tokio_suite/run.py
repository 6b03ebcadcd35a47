#!/usr/bin/env python3
"""Ports the tests of a checkout of tokio to Tourbillon by rules, and runs them.

  testing/tokio_suite/run.py CHECKOUT             runs all tests that have an equal here
  testing/tokio_suite/run.py CHECKOUT TEXT …      the files whose name contains one of the texts
  testing/tokio_suite/run.py CHECKOUT --on tokio  as they are, on the real tokio, for comparison
  testing/tokio_suite/run.py CHECKOUT --on facade as they are, on the package in `crates/tokio`
  … --unstable             the files for `--cfg tokio_unstable` alone, on one of the last two

The two also run the files in the folder `beside`, which tokio's own tests lack: with the text
`beside_` they run alone.

CHECKOUT is a clone of tokio's repository, or the source of its package. The script fetches only
the crates that the tests use. `rules.txt` has the rules, `differences.txt` the tests whose
failure is meant, with the reasons. The exit status is 1 if another test fails, if a test of that
list passes, or if a file does not compile. See docs/internals/verification.md.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

# The folder of this script stays clean.
sys.dont_write_bytecode = True
import port

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A test that is meant to fail may fail by a hang. It has this many seconds.
PATIENCE_FOR_DIFFERENCES = 5

# The crates that tokio's tests use, and the names of tokio's features that they ask for.
MANIFEST = """\
[workspace]
[package]
name = "tokio_suite"
version = "0.0.0"
edition = "2021"
autotests = false

[lib]
path = "lib.rs"
doctest = false

[features]
default = ["full", "test-util"]
full = [
    "fs", "io-std", "io-util", "macros", "net", "process", "rt", "rt-multi-thread", "signal",
    "sync", "time",
]
fs = []
io-std = []
io-uring = []
io-util = []
macros = []
net = []
process = []
rt = []
rt-multi-thread = []
schedule-latency = ["tokio/schedule-latency"]
signal = []
sync = []
taskdump = []
test-util = []
time = []
tracing = ["tokio/tracing"]

[dependencies]
async-stream = "0.3"
bytes = "1"
futures = { version = "0.3", features = ["async-await"] }
futures-concurrency = "7.6.3"
futures-test = "0.3.31"
futures-util = "0.3"
libc = "0.2"
mio = "1"
mockall = "0.13"
nix = { version = "0.31", default-features = false, features = ["fs", "socket"] }
pin-project-lite = "0.2"
proptest = "1"
rand = "0.9"
socket2 = "0.6"
tempfile = "3.1"
tokio-metrics = "0.5"
tokio-stream = "0.1"
tokio-test = "0.4"
tracing = "0.1"
tracing-mock = "=0.1.0-beta.1"
"""
RUNTIMES = {
    "tourbillon": """\
tokio = { version = "=VERSION", default-features = false, features = ["io-util", "macros", "sync"] }
tourbillon = { path = "ROOT", features = ["macros", "tokio-io"] }
""",
    "tokio": 'tokio = { version = "=VERSION", features = ["full", "test-util"] }\n',
    "facade": """\
tokio = { version = "1", features = ["full", "test-util"] }
[patch.crates-io]
tokio = { path = "ROOT/crates/tokio" }
""",
}
# Cargo, for which the source that this script places is the repository of tokio.
CARGO = [str(ROOT / "crates" / "tokio" / "real.sh"), "cargo"]


class Differences:
    """The list `differences.txt`: see the comment at its top."""

    KINDS = (
        *("file", "unstable", "both", "lacks", "stays", "no-api", "differs", "facade", "always"),
        *("skip", "crate", "omit"),
    )

    def __init__(self, path, on="tourbillon"):
        # The kinds of the tests that fail as meant.
        self.failing = ("differs" if on == "tourbillon" else "facade", "always")
        self.path, self.entries = path, []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            kind, pattern, reason = [*line.split(None, 2), "", ""][:3]
            if kind not in self.KINDS or not reason and kind != "stays":
                raise SystemExit(f"{path}:{number}: expected a kind, a name and a reason")
            self.entries.append((kind, pattern, reason))
        self.used = set()

    def find(self, kind, name):
        """Returns the reason of the first entry of that kind that matches, or `None`."""
        for entry in self.entries:
            if entry[0] == kind and fnmatch.fnmatchcase(name, entry[1]):
                self.used.add(entry)
                return entry[2]
        return None

    def meant(self, test):
        """Returns why a test fails as meant, or `None`."""
        reasons = [self.find(kind, test) for kind in self.failing]
        return next(filter(None, reasons), None)

    def functions(self, file):
        """Returns the functions of that file that are not compiled. The facade lacks no name."""
        of_file = f"{file}::"
        if "facade" in self.failing:
            return []
        return [e for e in self.entries if e[0] == "no-api" and e[1].startswith(of_file)]


class NoDifferences(Differences):
    """The real tokio has to pass each test that is run on any runtime."""

    def __init__(self, all_of_them):
        skipped = [entry for entry in all_of_them.entries if entry[0] == "skip"]
        self.failing, self.entries, self.used = (), skipped, set()


class Result:
    """The results of a file."""

    def __init__(self, name):
        self.name, self.tests, self.passed, self.ignored = name, 0, 0, 0
        self.differs, self.no_api, self.skipped, self.wrong = [], [], [], []


def main():
    arguments = parse()
    crate = arguments.checkout.resolve()
    if (crate / "tokio" / "Cargo.toml").is_file():
        crate = crate / "tokio"
    if not (crate / "tests" / "rt_basic.rs").is_file():
        raise SystemExit(f"{crate} has no tests: expected a clone of tokio, or its package")
    on = arguments.on
    if on == "facade" and not (ROOT / "crates" / "tokio" / "real" / "tokio").is_dir():
        raise SystemExit("the facade needs the real tokio's source: run crates/tokio/real.sh")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
    scratch = target / "tokio_suite" / on
    ours = on == "tourbillon"
    rules = port.Rules(HERE / ("rules.txt" if ours else os.devnull))
    list_of_all = Differences(HERE / "differences.txt", on)
    expected = NoDifferences(list_of_all) if on == "tokio" else list_of_all

    results, left_out = [], []
    for path in sources(crate, on):
        wanted = not arguments.texts or any(text in path.stem for text in arguments.texts)
        reason = list_of_all.find("file", path.stem)
        unstable = list_of_all.find("unstable", path.stem)
        if arguments.unstable and not unstable and not list_of_all.find("both", path.stem):
            continue
        reason = reason or unstable and not arguments.unstable and unstable
        lacks = list_of_all.find("lacks", path.stem)
        if reason or lacks and ours:
            left_out.append((path.stem, reason or lacks))
        elif wanted:
            results.append(Result(path.stem))
    write(scratch, crate, on, rules, expected, results)
    programs = build(scratch, target / "tokio_suite" / "target", results, arguments.unstable)
    run(crate, programs, expected, results, arguments.patience)
    if expected is list_of_all and not arguments.texts and not arguments.unstable:
        unused(list_of_all, results, ours)
    report(list_of_all, results, left_out)
    return 1 if any(result.wrong for result in results) else 0


def sources(crate, on):
    """Returns the files with tests: tokio's, and those that only run unported."""
    beside = [] if on == "tourbillon" else (HERE / "beside").glob("*.rs")
    return sorted([*(crate / "tests").glob("*.rs"), *beside], key=lambda path: path.stem)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--on", choices=RUNTIMES, default="tourbillon")
    parser.add_argument(
        "--unstable",
        action="store_true",
        help="only the files that need `--cfg tokio_unstable`, with it",
    )
    parser.add_argument(
        "--patience", type=int, default=120, help="seconds that only a test that hangs takes"
    )
    return parser.parse_intermixed_args()


def write(scratch, crate, on, rules, expected, results):
    """Writes the package with the ported tests."""
    shutil.rmtree(scratch / "tests", ignore_errors=True)
    shutil.copytree(crate / "tests" / "support", scratch / "tests" / "support")
    version = re.search(r'^version = "([^"]+)"', (crate / "Cargo.toml").read_text(), re.M).group(1)
    dependencies = RUNTIMES[on].replace("VERSION", version).replace("ROOT", str(ROOT))
    before, patch, after = dependencies.partition("[patch")
    manifest = MANIFEST + before
    paths = {path.stem: path for path in sources(crate, on)}
    for result in results:
        name = result.name
        text = paths[name].read_text()
        for _, pattern, reason in expected.functions(name):
            function = pattern.rpartition("::")[2]
            text, without = port.without(text, function), text
            if text is None:
                result.wrong.append(f"{pattern} is in the list, but there is no such function")
                text = without
            else:
                result.no_api.append(pattern)
        (scratch / "tests" / f"{name}.rs").write_text(rules.port(text))
        manifest += f'[[test]]\nname = "{name}"\npath = "tests/{name}.rs"\n'
    (scratch / "lib.rs").write_text("")
    (scratch / "Cargo.toml").write_text(manifest + patch + after)
    # The versions of the dependencies that they share are those of this repository.
    if not (scratch / "Cargo.lock").exists():
        shutil.copy(ROOT / "Cargo.lock", scratch / "Cargo.lock")


def build(scratch, target, results, is_unstable):
    """Builds all files, and returns the programs by their names."""
    by_name = {result.name: result for result in results}
    command = [*CARGO, "build", "--tests", "--keep-going", "--message-format=json"]
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(target),
        "RUSTFLAGS": "--cap-lints allow",
        # 120 programs with debug information would take gigabytes.
        "CARGO_PROFILE_DEV_DEBUG": "none",
        "CARGO_INCREMENTAL": "0",
    }
    if is_unstable:
        environment["RUSTFLAGS"] += " --cfg tokio_unstable"
        environment["CARGO_TARGET_DIR"] += "/unstable"
        command.append("--features=schedule-latency,tracing")
    child = subprocess.Popen(command, cwd=scratch, env=environment, stdout=subprocess.PIPE)
    programs, errors, lost = {}, {}, False
    for line in child.stdout:
        message = json.loads(line)
        name = message.get("target", {}).get("name")
        if message["reason"] == "compiler-artifact" and message.get("executable"):
            programs[name] = message["executable"]
        elif message["reason"] == "compiler-message":
            error = message["message"]
            if error["level"] == "error" and error["spans"]:
                errors.setdefault(name, []).append(error)
                lost = lost or name not in by_name
                if name not in by_name:
                    print(error["rendered"], file=sys.stderr)
    child.wait()
    if lost or not programs and not errors:
        raise SystemExit("the package does not build")
    for name, result in by_name.items():
        if name not in programs:
            result.wrong += explained(scratch / "tests" / f"{name}.rs", errors.get(name, []))
    return programs


def explained(path, errors):
    """Returns the errors of a file that does not compile, with the functions that have them."""
    text = path.read_text()
    lines = [f"{path.stem} does not compile"]
    for error in errors:
        spans = [s for s in error["spans"] if s["is_primary"]]
        while spans and not spans[0]["file_name"].endswith(path.name) and spans[0]["expansion"]:
            spans = [spans[0]["expansion"]["span"]]
        line = spans[0]["line_start"] if spans else 0
        item = port.item_at(text, line)
        lines.append(f"{path.stem}::{item} (line {line}): {error['message']}")
    return list(dict.fromkeys(lines))


def run(crate, programs, expected, results, patience):
    """Runs each test in a process of its own."""
    jobs = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for result in results:
            program = programs.get(result.name)
            if not program:
                continue
            ignored = names(program, "--ignored")
            for test in names(program):
                name = f"{result.name}::{test}"
                result.tests += 1
                if test in ignored:
                    result.ignored += 1
                elif expected.find("skip", name):
                    result.skipped.append(name)
                else:
                    meant = expected.meant(name)
                    limit = PATIENCE_FOR_DIFFERENCES if meant else patience
                    job = pool.submit(one, program, test, limit, crate)
                    jobs.append((result, name, meant, job))
        for result, name, meant, job in jobs:
            failure = job.result()
            if not failure and not meant:
                result.passed += 1
            elif failure and meant:
                result.differs.append(name)
            elif meant:
                result.wrong.append(f"{name} passes, but the list says: {meant}")
            else:
                result.wrong.append(f"{name}: {failure}")


def names(program, *options):
    """Returns the names of the tests of a program."""
    listed = subprocess.run(
        [program, "--list", "--format=terse", *options], capture_output=True, text=True, check=True
    )
    return re.findall(r"^(.*): test$", listed.stdout, re.M)


def one(program, test, limit, crate):
    """Runs a test for `limit` seconds at most, and returns how it failed, or `None`."""
    begin = time.monotonic()
    try:
        done = subprocess.run(
            [program, "--exact", test, "--test-threads=1"],
            cwd=crate,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"hangs: it did not end within {limit} s"
    took = time.monotonic() - begin
    if took > 10:
        print(f"slow: {test} took {took:.0f} s", file=sys.stderr)
    if done.returncode == 0:
        return None
    output = done.stdout.decode(errors="replace")
    panic = re.search(r"panicked at [^\n]*\n[^\n]*(?:\n +[^\n]*)*", output)
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}\n{output[-600:]}"
    if "test did not panic as expected" in output:
        return "it does not panic"
    return panic.group(0) if panic else output[-600:]


def unused(expected, results, ours):
    """Each entry must match something, so that the list has no leftovers."""
    of_facade = [pattern for kind, pattern, _ in expected.entries if kind in ("lacks", "unstable")]
    for entry in expected.entries:
        kind, pattern, _ = entry
        file = pattern.split("::")[0]
        # Tests of files that this runtime lacks, unstable ones, and those in `beside`, run on the
        # facade alone.
        if kind == "skip":
            is_due = ours and not any(fnmatch.fnmatchcase(file, other) for other in of_facade)
        else:
            is_due = kind in ("file", "unstable", "lacks", "always") or ours and kind == "differs"
            if kind == "facade":
                is_due = not ours and not expected.find("unstable", file)
            if ours and file.startswith("beside_"):
                is_due = False
        if is_due and entry not in expected.used:
            results[0].wrong.append(f"the list has an entry that matches nothing: {pattern}")


def report(expected, results, left_out):
    """Prints the tables."""
    groups = {"on this runtime's own API": [], "of tokio's own code, in tasks of this runtime": []}
    own, stays = groups
    for result in results:
        stay = expected.find("stays", result.name) is not None
        groups[stays if stay else own].append(result)
    columns = "tests", "passed", "differ", "no API", "skipped", "ignored", "wrong"
    for title, members in groups.items():
        if not members:
            continue
        print(f"\n{title}\n\n{'file':<28}" + "".join(f"{column:>9}" for column in columns))
        total = [0] * len(columns)
        for result in members:
            counts = counted(result)
            total = [a + b for a, b in zip(total, counts)]
            print(f"{result.name:<28}" + "".join(f"{count:>9}" for count in counts))
        print(f"{f'{len(members)} files':<28}" + "".join(f"{count:>9}" for count in total))
    print(f"\n{len(left_out)} files are left out; differences.txt says why")
    for result in results:
        for line in result.wrong:
            print(f"wrong: {line}")


def counted(result):
    tests = result.tests + len(result.no_api)
    lists = result.differs, result.no_api, result.skipped
    return [tests, result.passed, *map(len, lists), result.ignored, len(result.wrong)]


if __name__ == "__main__":
    sys.exit(main())
