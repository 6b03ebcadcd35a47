#!/usr/bin/env python3
"""Runs the own tests of widely used crates for tokio on the package in `crates/tokio`.

  crates/tokio/real.sh && testing/tokio_suite/crates.py    all crates of the list below
  testing/tokio_suite/crates.py tokio-util                 one of them
  testing/tokio_suite/crates.py tokio-util --on tokio      on the real tokio, for comparison

Cargo downloads the crates from crates.io. Each test runs in a process of its own. There are no
differences: the exit status is 1 if a test fails. See docs/internals/verification.md.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
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
# Each crate with the version whose tests are known, what Cargo is to build, and what the manifest
# lacks.
CRATES = {
    "tokio-stream": ("0.1.19", ["--all-features", "--tests"], ""),
    "tokio-util": ("0.7.20", ["--all-features", "--tests"], ""),
    "axum": ("0.8.9", ["--all-features", "--lib"], AXUM_MACROS),
    "kameo": ("0.22.2", ["--lib"], ""),
}

# How many seconds only a test that hangs takes.
PATIENCE = 60


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("crates", nargs="*", metavar="CRATE", help=", ".join(CRATES))
    parser.add_argument("--on", choices=["facade", "tokio"], default="facade")
    arguments = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or run.ROOT / "target").absolute()
    scratch = target / "tokio_suite" / "crates" / arguments.on
    wrong = []
    for name in arguments.crates or CRATES:
        version, options, lacking = CRATES[name]
        folder = place(scratch, name, version, lacking, arguments.on)
        programs = build(folder, target / "tokio_suite" / "target", options)
        wrong += test(name, folder, programs)
    for line in wrong:
        print(f"wrong: {line}")
    return 1 if wrong else 0


def place(scratch, name, version, lacking, on):
    """Places the source of a crate, as a workspace with the runtime. Returns its folder."""
    helper = scratch / "helper"
    shutil.rmtree(helper, ignore_errors=True)
    (helper / "src").mkdir(parents=True)
    (helper / "src" / "lib.rs").write_text("")
    (helper / "Cargo.toml").write_text(
        '[workspace]\n[package]\nname = "helper"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\n{name} = {{ version = "={version}", default-features = false }}\n'
    )
    command = ["cargo", "vendor", "--quiet", "vendor"]
    subprocess.run(command, cwd=helper, check=True, stdout=subprocess.DEVNULL)
    folder = scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(helper / "vendor" / name, folder)
    shutil.rmtree(helper)
    # The lock file of the crate has the versions with which its author tests it, if it is there.
    # With the patch the version of tokio is another one.
    manifest = f"\n{lacking}\n[workspace]\n"
    if on == "facade":
        manifest += f'[patch.crates-io]\ntokio = {{ path = "{run.ROOT / "crates" / "tokio"}" }}\n'
        (folder / "Cargo.lock").unlink(missing_ok=True)
    with open(folder / "Cargo.toml", "a") as file:
        file.write(manifest)
    return folder


def build(folder, target, options):
    """Builds the tests, and returns the programs by their names."""
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(target),
        "RUSTFLAGS": "--cap-lints allow",
        "CARGO_PROFILE_DEV_DEBUG": "none",
        "CARGO_INCREMENTAL": "0",
    }
    command = [*run.CARGO, "test", "--no-run", "--message-format=json", *options]
    built = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE)
    if built.returncode != 0:
        for line in built.stdout.splitlines():
            message = json.loads(line).get("message", {})
            if message.get("level") == "error":
                print(message["rendered"], file=sys.stderr)
        raise SystemExit(f"{folder.name} does not build")
    programs = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            programs[message["target"]["name"]] = message["executable"]
    return programs


def test(crate, folder, programs):
    """Runs all tests of a crate, and returns those that fail."""
    jobs = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for program, path in sorted(programs.items()):
            ignored = run.names(path, "--ignored")
            for name in run.names(path):
                if name not in ignored:
                    job = pool.submit(run.one, path, name, PATIENCE, folder)
                    jobs.append((f"{crate}/{program}::{name}", job))
    wrong = [f"{name}: {failure}" for name, job in jobs if (failure := job.result())]
    print(f"{crate}: {len(jobs)} tests, {len(jobs) - len(wrong)} passed")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
