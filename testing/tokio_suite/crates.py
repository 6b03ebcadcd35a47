#!/usr/bin/env python3
"""Runs the own tests of widely used crates for tokio, on tokio and on the package `crates/tokio`.

  crates/tokio/real.sh && testing/tokio_suite/crates.py    all crates of the list below
  testing/tokio_suite/crates.py tokio-util h2              some of them
  testing/tokio_suite/crates.py h2 --on facade             on one runtime alone

Cargo downloads the crates from crates.io, verifies their checksums, and builds them unmodified. The
two runtimes take turns. Each test runs in a process of its own. At the end the script prints a
table. `differences.txt` has the tests that differ as meant, with the reasons. The exit status is 1
if another test passes on one runtime alone, if one of that list does not differ, or if a crate does
not build. See testing/README.md.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import run

# A package on crates.io lacks the dependencies of its tests that have no version.
AXUM_MACROS = """
[dev-dependencies.axum-macros]
version = "0.5"
features = ["__private"]
"""
# Its tests only import this crate of examples, so another one may have the name.
RACTOR_EXAMPLE = """
[dev-dependencies.ractor_example_entry_proc]
version = "1"
package = "cfg-if"
"""
# Its other tests need a helper that is on no registry, or links that its package lacks.
SQLX = ["--features=runtime-tokio,sqlite", "--lib"]
SQLX += [f"--test=sqlite-{name}" for name in ["migrate", "rustsec", "test-attr"]]
ALL = ["--all-features", "--tests"]
# Each crate with the version whose tests are known, what Cargo is to build, and what the manifest
# lacks. With `--lib` alone, the package has no other tests, or they need what it lacks.
CRATES = {
    "mini-redis": ("0.4.1", ["--tests"], ""),
    "tokio-stream": ("0.1.19", ALL, ""),
    "tokio-util": ("0.7.20", ALL, ""),
    "tower": ("0.5.3", ALL, ""),
    "hyper": ("1.12.0", ["--features=full", "--lib"], ""),
    "hyper-util": ("0.1.21", ["--features=full", "--tests"], ""),
    "h2": ("0.4.20", ["--lib"], ""),
    "axum": ("0.8.9", ["--all-features", "--lib", "--test=panic_location"], AXUM_MACROS),
    "kameo": ("0.22.2", ["--lib"], ""),
    "ractor": ("0.16.5", ["--tests"], RACTOR_EXAMPLE),
    "actix-rt": ("2.15.0", ["--tests"], ""),
    "tarpc": ("0.38.0", ["--features=full", "--tests"], ""),
    "bb8": ("0.9.1", ["--tests"], ""),
    "quinn": ("0.11.12", ["--tests"], ""),
    "reqwest": ("0.13.5", ["--no-default-features", "--features=json,stream", "--lib"], ""),
    "rathole": ("0.5.0", ["--no-default-features", "--features=server,client", "--lib"], ""),
    "turmoil": ("0.7.2", ALL, ""),
    "tokio-tungstenite": ("0.30.0", ["--tests"], ""),
    "tonic": ("0.14.9", ["--lib"], ""),
    "sqlx": ("0.9.0", SQLX, ""),
    "bore-cli": ("0.6.0", ["--tests"], ""),
}
RUNTIMES = ["tokio", "facade"]
# How often each test runs. One that fails each time has failed. One that fails at times is printed.
ROUNDS = 2
# How many seconds only a test that hangs takes.
PATIENCE = 300
# The crates that are built as their authors do it, with `--cfg tokio_unstable`.
UNSTABLE = ["turmoil"]
# The crates whose tests use one port, and run one by one.
ONE_BY_ONE = ["bore-cli"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("crates", nargs="*", metavar="CRATE", help=", ".join(CRATES))
    parser.add_argument("--on", choices=RUNTIMES)
    arguments = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or run.ROOT / "target").absolute()
    differences = run.Differences(run.HERE / "differences.txt")
    rows, wrong = [], []
    for name in arguments.crates or CRATES:
        version, options, lacking = CRATES[name]
        results = {}
        for on in [arguments.on] if arguments.on else RUNTIMES:
            facade = run.ROOT / "crates" / "tokio" if on == "facade" else None
            folder = place(target / "tokio_suite" / "crates" / on, name, version, lacking, facade)
            programs = build(folder, target / "tokio_suite" / "target", options, name in UNSTABLE)
            if programs is None:
                wrong.append(f"{name} does not build on {on}")
            else:
                results[on] = Results(name, on, folder, programs)
        for _ in range(ROUNDS):
            for result in results.values():
                result.run(differences)
        wrong += compared(results, differences)
        cells = [results[on].cells() if on in results else "| | | " for on in RUNTIMES]
        rows.append(f"| {name} {version} {''.join(cells)}|")
        print(rows[-1], flush=True)
    print("\n| crate | tokio: passed | failed | CPU | facade: passed | failed | CPU |")
    print("|---|---|---|---|---|---|---|", *rows, sep="\n")
    for line in wrong:
        print(f"wrong: {line}")
    return 1 if wrong else 0


def place(scratch, name, version, lacking, facade):
    """Places the source of a crate, as a workspace with the package `tokio` in the folder `facade`,
    or with tokio. Returns its folder."""
    helper = scratch / "helper"
    shutil.rmtree(helper, ignore_errors=True)
    (helper / "src").mkdir(parents=True)
    (helper / "src" / "lib.rs").write_text("")
    (helper / "Cargo.toml").write_text(
        '[workspace]\n[package]\nname = "helper"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\n{name} = {{ version = "={version}", default-features = false }}\n'
    )
    # Downloads it, and verifies its checksum.
    command = ["cargo", "metadata", "--quiet", "--format-version=1"]
    command.append("--filter-platform=x86_64-unknown-linux-gnu")
    found = subprocess.run(command, cwd=helper, check=True, stdout=subprocess.PIPE)
    packages = json.loads(found.stdout)["packages"]
    [source] = [p for p in packages if (p["name"], p["version"]) == (name, version)]
    folder = scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pathlib.Path(source["manifest_path"]).parent, folder)
    shutil.rmtree(helper)
    # All crates are built by one compiler, and so are both runtimes.
    (folder / "rust-toolchain.toml").unlink(missing_ok=True)
    # Both runtimes have the newest versions of the dependencies.
    (folder / "Cargo.lock").unlink(missing_ok=True)
    manifest = f"\n{lacking}\n[workspace]\n"
    if facade:
        manifest += f'[patch.crates-io]\ntokio = {{ path = "{facade}" }}\n'
    with open(folder / "Cargo.toml", "a") as file:
        file.write(manifest)
    return folder


def build(folder, target, options, is_unstable):
    """Builds the tests, and returns the programs by their names, or `None`."""
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(target),
        "RUSTFLAGS": "--cap-lints allow",
        "CARGO_PROFILE_DEV_DEBUG": "none",
        "CARGO_INCREMENTAL": "0",
    }
    if is_unstable:
        environment["RUSTFLAGS"] += " --cfg tokio_unstable"
        environment["CARGO_TARGET_DIR"] += "/unstable"
    command = [*run.CARGO, "test", "--no-run", "--message-format=json", *options]
    built = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE)
    if built.returncode != 0:
        for line in built.stdout.splitlines():
            message = json.loads(line).get("message", {})
            if message.get("level") == "error":
                print(message["rendered"], file=sys.stderr)
        return None
    programs = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            programs[message["target"]["name"]] = message["executable"]
    return programs


class Results:
    """The results of a crate on one runtime."""

    def __init__(self, crate, on, folder, programs):
        self.crate, self.on, self.folder, self.programs = crate, on, folder, programs
        # How each test failed the last time, or `None` if it has passed once.
        self.tests = {}
        self.seconds = 0

    def run(self, differences):
        """Runs each test once, but for those that are skipped."""
        jobs = []
        before = processor_time()
        at_once = 1 if self.crate in ONE_BY_ONE else os.cpu_count()
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for program, path in sorted(self.programs.items()):
                ignored = run.names(path, "--ignored")
                for test in run.names(path):
                    name = f"{self.crate}::{program}::{test}"
                    if test not in ignored and not differences.find("omit", name):
                        job = pool.submit(run.one, path, test, PATIENCE, self.folder)
                        jobs.append((name, job))
        for name, job in jobs:
            before_it, failure = self.tests.get(name, job.result()), job.result()
            if (before_it is None) != (failure is None):
                print(f"unsteady on {self.on}: {name}: {before_it or failure}", file=sys.stderr)
            self.tests[name] = before_it and failure
        self.seconds += processor_time() - before

    def cells(self):
        failed = sum(failure is not None for failure in self.tests.values())
        return f"| {len(self.tests) - failed} | {failed} | {self.seconds / ROUNDS:.1f} s "


def processor_time():
    """Returns the processor time of all processes that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compared(results, differences):
    """Returns the tests that differ between the runtimes, or fail on the only one, unlisted."""
    wrong = []
    on_tokio = results["tokio"].tests if "tokio" in results else {}
    on_facade = results["facade"].tests if "facade" in results else {}
    for name in sorted({*on_tokio, *on_facade}):
        meant = differences.find("crate", name)
        first, second = on_tokio.get(name), on_facade.get(name)
        differs = (first is None) != (second is None) if len(results) == 2 else first or second
        if first and second:
            print(f"fails on both: {name}: {second}", file=sys.stderr)
        if differs and not meant:
            first, second = first or "passed", second or "passed"
            wrong.append(f"{name}: on tokio {first}, on the facade {second}")
        elif meant and not differs and "facade" in results:
            wrong.append(f"{name} does not differ, but the list says: {meant}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
