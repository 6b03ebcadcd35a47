#!/usr/bin/env python3
"""Measures unmodified servers for tokio, on tokio and on the package in `crates/tokio`, by turns.

  crates/tokio/real.sh && testing/tokio_suite/servers.py    all servers of the list below
  testing/tokio_suite/servers.py bore-cli --rounds 3       one of them
  … --rescue-latency 1    also the facade with another bound for blocked workers, in milliseconds

Cargo downloads the servers from crates.io, verifies their checksums, and builds them as releases.
`redis-benchmark` asks each of them. The tunnels lead to `redis-server`. The table has medians: the
processor time of the server's processes for each request, and the latency that 99 % of the requests
keep. The times of the facade in parts of tokio's are of each round: the median, and the least and
the most. The clients take processor time as well: use a quiet machine. The first line has the day,
the processor and the load.
"""

import argparse
import datetime
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import crates
import run

REDIS, SERVED, CONTROL = 7401, 7402, 7403
RATHOLE = f"""
[server]
bind_addr = "127.0.0.1:{CONTROL}"
default_token = "token"
[server.services.redis]
bind_addr = "127.0.0.1:{SERVED}"
[client]
remote_addr = "127.0.0.1:{CONTROL}"
default_token = "token"
[client.services.redis]
local_addr = "127.0.0.1:{REDIS}"
"""
BORE = ["--min-port", str(SERVED)]
# Each server: the binary, and the arguments of each of its processes.
SERVERS = {
    "mini-redis": ("mini-redis-server", [["--port", str(SERVED)]]),
    "bore-cli": (
        "bore",
        [["server", *BORE], ["local", str(REDIS), "--to", "127.0.0.1", "--port", str(SERVED)]],
    ),
    "rathole": ("rathole", [["--server", "rathole.toml"], ["--client", "rathole.toml"]]),
}
# How many connections ask at once, and how many a server accepts. `redis-benchmark` waits until all
# of its connections are answered.
CONNECTIONS = [1, 16, 64, 256]
MOST = {"mini-redis": 250}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=", ".join(SERVERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100_000, help="of each round")
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    parser.add_argument("--rescue-latency", type=int, metavar="MS")
    arguments = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or run.ROOT / "target").absolute()
    facades = {"facade": run.ROOT / "crates" / "tokio"}
    bound = arguments.rescue_latency
    if bound is not None and bound < 1:
        parser.error("--rescue-latency must be 1 or more")
    if bound:
        on = f"facade, {bound} ms"
        facades[on] = facade_with(bound, target / "tokio_suite" / "servers" / f"tokio-{bound}-ms")
    heads = ["server", "connections", "tokio: CPU a request", "p99"]
    for on in facades:
        heads += [f"{on}: CPU a request", "p99", "CPU, in parts of tokio's"]
    print(f"{datetime.date.today()}, {machine()}:\n\n| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|", flush=True)
    for name in arguments.servers or SERVERS:
        programs = {"tokio": build(target, name, "tokio")}
        programs |= {on: build(target, name, on, facade) for on, facade in facades.items()}
        for connections in arguments.connections:
            connections = min(connections, MOST.get(name, connections))
            found = {on: [] for on in programs}
            for number in range(arguments.rounds):
                # Each is the first one and the last one by turns.
                turns = list(programs.items())
                for on, program in turns if number % 2 == 0 else reversed(turns):
                    measured = measure(name, program, connections, arguments.requests)
                    found[on].append(measured)
            cells = [cell(found[on]) for on in programs]
            for i, on in enumerate(facades, 1):
                cells[i] += f" | {parts(found[on], found['tokio'])}"
            print(f"| {name} | {connections} | {' | '.join(cells)} |", flush=True)


def machine():
    """Returns the processor, how many there are, and what the load is before the first build."""
    found = re.search(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    processor = found.group(1) if found else "unknown processor"
    return f"{processor}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"


def facade_with(bound, folder):
    """Copies the package `tokio` with another bound for blocked workers, and returns the copy."""
    shutil.rmtree(folder, ignore_errors=True)
    package = run.ROOT / "crates" / "tokio"
    shutil.copytree(package, folder, ignore=shutil.ignore_patterns("real", "target"))
    for file, old, new in [
        ("Cargo.toml", 'path = "../.."', f'path = "{run.ROOT}"'),
        ("src/runtime/builder.rs", "from_millis(10);", f"from_millis({bound});"),
    ]:
        text = (folder / file).read_text()
        if text.count(old) != 1:
            raise SystemExit(f"crates/tokio/{file} has no single `{old}`")
        (folder / file).write_text(text.replace(old, new))
    return folder


def build(target, name, on, facade=None):
    """Builds a server, with the package `tokio` in a folder or with tokio. Returns its program."""
    version, options, lacking = crates.CRATES[name]
    servers = target / "tokio_suite" / "servers"
    scratch = servers / on.replace(", ", "-").replace(" ", "-")
    folder = crates.place(scratch, name, version, lacking, facade)
    command = [*run.CARGO, "build", "--release", "--bins", "--quiet"]
    command += [option for option in options if "features" in option]
    environment = {
        **os.environ,
        # The builds share the crates that do not use the runtime.
        "CARGO_TARGET_DIR": str(servers / "target"),
        "RUSTFLAGS": "--cap-lints allow",
    }
    subprocess.run(command, cwd=folder, env=environment, check=True)
    program = scratch / "programs" / SERVERS[name][0]
    program.parent.mkdir(exist_ok=True)
    # The next build has a program of the same name.
    shutil.copy2(servers / "target" / "release" / program.name, program)
    return program


def measure(name, program, connections, requests):
    """Returns the processor time of a request, in µs, and the latency of 99 % of them, in ms."""
    folder = program.parent
    (folder / "rathole.toml").write_text(RATHOLE)
    environment = {**os.environ, "RUST_LOG": "error"}
    if name == "mini-redis":
        # It logs errors alone by default. With a value, its logger panics as it compiles a pattern:
        # it does not ask for the feature of `regex` that the pattern needs.
        del environment["RUST_LOG"]
    started = [["redis-server", "--port", str(REDIS), "--save", "", "--daemonize", "no"]]
    started += [[str(program), *options] for options in SERVERS[name][1]]
    processes = []
    try:
        for command in started:
            processes.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            # A tunnel's client finds its server.
            time.sleep(0.3)
        await_port(SERVED, processes)
        ask(connections, requests // 10)
        before = sum(processor_time(process.pid) for process in processes[1:])
        latency = ask(connections, requests)
        after = sum(processor_time(process.pid) for process in processes[1:])
        return (after - before) / requests, latency
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def await_port(port, processes):
    """Waits until a connection leads to a server that answers."""
    for _ in range(600):
        for process in processes:
            if process.poll() is not None:
                raise SystemExit(f"{process.args} ended, with the status {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as stream:
                stream.sendall(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n")
                if stream.recv(1):
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"no server answers at port {port}")


def ask(connections, requests):
    """Sends requests to the server, and returns the latency of 99 % of them, in ms."""
    command = ["redis-benchmark", "-p", str(SERVED), "-t", "get", "--csv"]
    command += ["-c", str(connections), "-n", str(requests)]
    try:
        asked = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"no answers within 600 s: {' '.join(command)}")
    found = re.search(r'^"GET"(?:,"[\d.]+"){5},"([\d.]+)"', asked.stdout, re.M)
    return float(found.group(1))


def processor_time(pid):
    """Returns the processor time of a process, also of threads that have ended, in µs."""
    # The number that `clock_getcpuclockid` of the C library returns.
    return time.clock_gettime_ns((~pid << 3) | 2) / 1000


def parts(found, of_tokio):
    """Returns the processor times of the rounds, divided by those of tokio in the same rounds."""
    ratios = [here[0] / there[0] for here, there in zip(found, of_tokio)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def cell(found):
    """Returns the medians of all rounds."""
    each, latency = (statistics.median(values) for values in zip(*found))
    return f"{each:.1f} µs | {latency:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
