#!/usr/bin/env python3
"""Checks that the package in `crates/tokio` has each public name of the real tokio.

  crates/tokio/real.sh && testing/tokio_suite/surface.py
  testing/tokio_suite/surface.py --unstable    with `--cfg tokio_unstable` and feature `tracing`

The list comes from the rustdoc of the real tokio, so this fails when tokio gains a name that the
package lacks. Each item is imported by its path, each method is named by its type, and each
implementation of a trait for a type without parameters is asked for. A path such as
`TcpListener::local_addr` finds only what the type itself has: a trait of a library that has a
method of this name calls it so, and would call itself if the type had it by `Deref` alone.

Each function that returns a future must also be called by a test that drops its future at every
poll, if its code is not tokio's own. Functions of one name are not told apart.

`surface.txt` lists the exceptions, with the reasons. The exit status is 1 if a name is missing, or
if an exception is there. See docs/internals/verification.md.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REAL = ROOT / "crates" / "tokio" / "real" / "tokio"

MANIFEST = """\
[workspace]
[package]
name = "surface"
version = "0.0.0"
edition = "2021"
[lib]
path = "lib.rs"
[dependencies]
bytes = "1"
tokio = {{ path = "{path}", features = ["full", "test-util"{more}] }}
"""
# What the compiler says of a path that does exist, since nothing tells it the parameters.
UNKNOWN_PARAMETERS = {"E0282", "E0283", "E0284", "E0790"}
# Modules that are private, and export what they have to the one above.
PRIVATE = re.compile(
    r"^(std::os::fd|std::os::unix::net|std::net|std::io|core::(?:panic|task|ops|future)|bytes::buf)"
    r"::(raw|owned|stream|listener|datagram|addr|ucred|tcp|udp|error|unwind_safe|wake|arith|bit|"
    r"deref|function|future|buf_impl|buf_mut)::"
)
# The tests that drop futures at every poll.
DROPPED = ["tests/*/dropped.rs", "tests/*/dropped/*.rs", "testing/matrix/tests/dropped/*.rs"]
# What is tokio's own code in the package: no task, socket or timer of tokio's is in it.
OWN = re.compile(r"^tokio::(sync(?!::mpsc::Sender)|io(?!::unix))::")
# No caller can need these traits.
INTERNAL = {"Drop", "Freeze", "StructuralPartialEq", "TrivialClone", "UnsafeUnpin"}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--unstable", action="store_true")
    unstable = parser.parse_args().unstable
    if not REAL.is_dir():
        raise SystemExit("run crates/tokio/real.sh first")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
    scratch = target / "tokio_suite" / ("surface_unstable" if unstable else "surface")
    surface = Surface(rustdoc(scratch / "real", target, unstable))
    exceptions = Exceptions(HERE / "surface.txt", unstable)
    check = Check(scratch / "ours", target, unstable)
    paths = surface.paths
    missing = check.missing({name: f"pub use {name} as _{n};" for n, name in enumerate(paths)})
    # A type that is missing hides other errors, and so does a trait. What names such a type is
    # missing with it.
    gone = re.compile("|".join([rf"{name}\b" for name in missing]) or "$^")
    for members in (surface.traits, surface.methods):
        left = {name: text for name, text in members.items() if not gone.search(text)}
        missing += check.missing(left)
    wrong = [f"missing: {name}" for name in missing if not exceptions.has(name)]
    futures = [name for name in surface.futures if not OWN.match(name)]
    wrong += [f"no test drops: {it}" for it in undropped(futures) if not exceptions.has(it)]
    wrong += exceptions.unused()
    for line in wrong:
        print(line)
    counts = f"{len(paths)} paths, {len(surface.methods)} members, {len(surface.traits)} traits"
    print(f"{counts}; {len(missing)} are missing; {len(futures)} return a future")
    return 1 if wrong else 0


def undropped(futures):
    """Returns the functions that no test of dropped futures calls."""
    texts = [path.read_text() for pattern in DROPPED for path in sorted(ROOT.glob(pattern))]
    called = set(re.findall(r"(?<!fn )\b(\w+)(?:::<[^>]*>)?\(", "\n".join(texts)))
    return [name for name in futures if name.rpartition("::")[2] not in called]


class Exceptions:
    """The list `surface.txt`: see the comment at its top."""

    def __init__(self, path, unstable):
        self.patterns, self.used = [], set()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                pattern, arrow, reason = line.partition(" -- ")
                if not arrow or not reason.strip():
                    raise SystemExit(f"{path}:{number}: expected `NAME -- REASON`")
                name = pattern.strip().removeprefix("unstable ")
                if name == pattern.strip() or unstable:
                    self.patterns.append(name)

    def has(self, name):
        found = [pattern for pattern in self.patterns if fnmatch.fnmatchcase(name, pattern)]
        self.used.update(found)
        return bool(found)

    def unused(self):
        return [f"not missing: {pattern}" for pattern in self.patterns if pattern not in self.used]


def flags(unstable):
    """Returns the flags of the compiler, and of rustdoc."""
    value = "--cfg tokio_unstable" if unstable else ""
    return {"RUSTFLAGS": value, "RUSTDOCFLAGS": value}


def rustdoc(scratch, target, unstable):
    """Returns the rustdoc of the real tokio as JSON."""
    write(scratch, REAL, "", unstable)
    nightly = run([ROOT / ".ci" / "toolchain", "nightly"]).stdout.strip()
    command = ["cargo", f"+{nightly}", "rustdoc", "--quiet", "--package", "tokio", "--lib", "--"]
    # Of a type that is exported from a hidden module, too.
    command += ["-Zunstable-options", "--output-format=json", "--document-hidden-items"]
    command += ["--cap-lints=allow"]
    folder = target / "tokio_suite" / ("rustdoc_unstable" if unstable else "rustdoc")
    environment = {**os.environ, **flags(unstable), "CARGO_TARGET_DIR": str(folder)}
    run(command, cwd=scratch, env=environment)
    return json.loads((folder / "doc" / "tokio.json").read_text())


def write(scratch, path, text, unstable):
    scratch.mkdir(parents=True, exist_ok=True)
    more = ', "schedule-latency", "tracing"' if unstable else ""
    (scratch / "Cargo.toml").write_text(MANIFEST.format(path=path, more=more))
    (scratch / "lib.rs").write_text(text)
    # The versions of the dependencies are those of the package.
    if not (scratch / "Cargo.lock").exists():
        shutil.copy(ROOT / "crates" / "tokio" / "Cargo.lock", scratch / "Cargo.lock")


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"failed: {' '.join(map(str, command))}")
    return done


class Surface:
    """What is public in a crate."""

    def __init__(self, rustdoc):
        self.index, self.ids = rustdoc["index"], rustdoc["paths"]
        # The paths of all items, and the code that asks for each member and for each trait.
        self.paths, self.methods, self.traits = [], {}, {}
        # The functions and methods that return a future.
        self.futures = []
        # The first path of each type and trait by its number, and the types by this path.
        self.public, self.types = {}, {}
        self.module(self.index[str(rustdoc["root"])], "tokio", set())
        for path, item in self.types.items():
            self.type(path, item)

    def module(self, module, path, above):
        for id in module["inner"]["module"]["items"]:
            item = self.index[str(id)]
            [(kind, inner)] = item["inner"].items()
            if is_hidden(item):
                continue
            if kind != "use":
                self.item(f"{path}::{item['name']}", item, above)
                continue
            used = self.index.get(str(inner["id"]))
            if not inner["is_glob"]:
                name = f"{path}::{inner['name']}"
                # What another crate defines has a path, and its methods are its own.
                self.item(name, used, above) if used else self.path(name)
            elif used and inner["id"] not in above:
                self.module(used, path, above | {inner["id"]})

    def item(self, path, item, above):
        [(kind, inner)] = item["inner"].items()
        self.path(path)
        if kind == "function":
            self.future(path, inner)
        if kind == "module":
            self.module(item, path, above)
        if kind in ("struct", "enum", "union"):
            # A type may have several paths.
            if item["id"] not in self.public:
                self.types[path] = item
            self.public.setdefault(item["id"], path)
        if kind == "trait":
            self.public.setdefault(item["id"], path)

    def path(self, path):
        if path not in self.paths:
            self.paths.append(path)

    def add(self, to, name, text):
        to.setdefault(name, f"fn _{len(to)}{text}")

    def type(self, path, item):
        [(kind, inner)] = item["inner"].items()
        for id in inner.get("variants", []):
            name = f"{path}::{self.index[str(id)]['name']}"
            self.add(self.methods, name, f"() {{ use {name}; }}")
        form = inner["kind"] if kind == "struct" else None
        for id in form["plain"]["fields"] if isinstance(form, dict) and "plain" in form else []:
            field = self.index[str(id)]
            if field["visibility"] == "public" and not is_hidden(field):
                text = f"(it: {path}) {{ let _ = it.{field['name']}; }}"
                self.add(self.methods, f"{path}::{field['name']}", text)
        for id in inner["impls"]:
            self.implementation(path, self.index[str(id)]["inner"]["impl"])

    def future(self, name, function):
        """Takes note of a function that returns a future."""
        if not function or name in self.futures:
            return
        if function["header"]["is_async"] or self.is_future(function["sig"]["output"]):
            self.futures.append(name)

    def is_future(self, type):
        if type is None:
            return False
        [(kind, inner)] = type.items()
        if kind == "impl_trait":
            bounds = [bound.get("trait_bound") for bound in inner]
            return any(bound and bound["trait"]["path"].endswith("Future") for bound in bounds)
        if kind != "resolved_path" or str(inner["id"]) not in self.index:
            return False
        [defined] = self.index[str(inner["id"])]["inner"].values()
        impls = defined.get("impls", []) if isinstance(defined, dict) else []
        traits = [self.index[str(id)]["inner"]["impl"]["trait"] for id in impls]
        return any(trait and trait["path"].rpartition("::")[2] == "Future" for trait in traits)

    def implementation(self, path, it):
        if it["blanket_impl"] is not None or it["is_negative"]:
            return
        if it["trait"] is None:
            for id in it["items"]:
                method = self.index[str(id)]
                if method["visibility"] == "public" and not is_hidden(method):
                    name = f"{path}::{method['name']}"
                    self.add(self.methods, name, f"() {{ let _ = {name}; }}")
                    self.future(name, method["inner"].get("function"))
            return
        try:
            wanted, of = self.written(it["trait"]), self.described(it["for"])
        except Unwritten:
            return
        name = wanted.rpartition("::")[2] if "<" not in wanted else wanted
        if it["trait"]["path"].rpartition("::")[2] not in INTERNAL and "tokio" in of + wanted:
            self.add(self.traits, f"{path}: {name}", f"() where {of}: {wanted} {{}}")

    def described(self, type):
        """Returns the code of a type without parameters."""
        [(kind, inner)] = type.items()
        if kind == "primitive":
            return inner
        if kind == "resolved_path":
            return self.written(inner)
        if kind == "borrowed_ref" and not inner["is_mutable"]:
            return f"&'static {self.described(inner['type'])}"
        raise Unwritten

    def written(self, path):
        """Returns the code of a path whose parameters are types without parameters."""
        args = path["args"] or {"angle_bracketed": {"args": [], "constraints": []}}
        if "angle_bracketed" not in args:
            raise Unwritten
        parameters = []
        for arg in args["angle_bracketed"]["args"]:
            if "type" in arg:
                parameters.append(self.described(arg["type"]))
            elif "lifetime" in arg:
                parameters.append("'static")
            else:
                raise Unwritten
        name = self.public.get(path["id"])
        if name is None:
            of = self.ids.get(str(path["id"]))
            if of is None or of["crate_id"] == 0:
                raise Unwritten
            name = "::".join(of["path"])
            while PRIVATE.match(name):
                name = PRIVATE.sub(r"\1::", name)
        return f"::{name}<{', '.join(parameters)}>" if parameters else f"::{name}"


def is_hidden(item):
    return any("doc(hidden)" in str(attribute) for attribute in item["attrs"])


class Unwritten(Exception):
    """A type with parameters, or one that has no public path."""


class Check:
    """Asks the compiler which names are there."""

    def __init__(self, scratch, target, unstable):
        self.scratch, self.unstable = scratch, unstable
        self.target = target / "tokio_suite" / "target"
        if unstable:
            self.target = self.target / "unstable"

    def missing(self, lines):
        """Returns the names whose line of code does not compile."""
        names = list(lines)
        text = "#![allow(deprecated, unused, trivial_bounds)]\n" + "\n".join(lines.values())
        write(self.scratch, ROOT / "crates" / "tokio", text, self.unstable)
        command = [ROOT / "crates" / "tokio" / "real.sh"]
        command += ["cargo", "check", "--quiet", "--message-format=json"]
        environment = {**os.environ, **flags(self.unstable), "CARGO_TARGET_DIR": str(self.target)}
        done = subprocess.run(
            command, cwd=self.scratch, env=environment, stdout=subprocess.PIPE, text=True
        )
        found, strange = set(), []
        for line in done.stdout.splitlines():
            message = json.loads(line)
            if message["reason"] != "compiler-message" or message["target"]["name"] != "surface":
                continue
            error = message["message"]
            code = (error["code"] or {}).get("code")
            if error["level"] != "error" or not error["spans"] or code in UNKNOWN_PARAMETERS:
                continue
            lines = {span["line_start"] for span in error["spans"] if span["is_primary"]}
            found.update(lines)
            # A method or a type that is not there, or a trait that is not implemented.
            if code not in ("E0432", "E0433", "E0599", "E0609", "E0277"):
                strange.append(error["rendered"])
        if strange:
            raise SystemExit("".join(strange))
        if done.returncode != 0 and '"compiler-message"' not in done.stdout:
            raise SystemExit("the package does not build")
        return [names[line - 2] for line in sorted(found)]


if __name__ == "__main__":
    sys.exit(main())
