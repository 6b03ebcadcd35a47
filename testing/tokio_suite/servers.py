#!/usr/bin/env python3
"""Measures unmodified servers for tokio, on tokio and on the package in `crates/tokio`, by turns.

  crates/tokio/real.sh && testing/tokio_suite/servers.py    all servers of the list below
  testing/tokio_suite/servers.py bore-cli --rounds 3       one of them

Cargo downloads the servers from crates.io, verifies their checksums, and builds them as releases.
`redis-benchmark` asks each of them. The tunnels lead to `redis-server`. The table has medians: the
processor time of the server's processes for each request, and the latency that 99 % of the requests
keep. The clients take processor time as well: use a quiet machine.
"""

import argparse
import os
import pathlib
import re
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
# How many connections ask at once.
CONNECTIONS = [1, 16, 64, 256]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=", ".join(SERVERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100_000, help="of each round")
    arguments = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or run.ROOT / "target").absolute()
    print("| server | connections | tokio: CPU a request | p99 | facade: CPU a request | p99 |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in arguments.servers or SERVERS:
        programs = {on: build(target, name, on) for on in crates.RUNTIMES}
        for connections in CONNECTIONS:
            found = {on: [] for on in programs}
            for _ in range(arguments.rounds):
                for on, program in programs.items():
                    measured = measure(name, program, connections, arguments.requests)
                    found[on].append(measured)
            cells = [cell(found[on]) for on in programs]
            print(f"| {name} | {connections} | {' | '.join(cells)} |", flush=True)


def build(target, name, on):
    """Builds a server, and returns the path of its program."""
    version, options, lacking = crates.CRATES[name]
    folder = crates.place(target / "tokio_suite" / "servers" / on, name, version, lacking, on)
    folder_of_programs = target / "tokio_suite" / "servers" / on / "target"
    command = [*run.CARGO, "build", "--release", "--bins", "--quiet"]
    command += [option for option in options if "features" in option]
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": str(folder_of_programs),
        "RUSTFLAGS": "--cap-lints allow",
    }
    subprocess.run(command, cwd=folder, env=environment, check=True)
    return folder_of_programs / "release" / SERVERS[name][0]


def measure(name, program, connections, requests):
    """Returns the processor time of a request, in µs, and the latency of 99 % of them, in ms."""
    folder = program.parent
    (folder / "rathole.toml").write_text(RATHOLE)
    environment = {**os.environ, "RUST_LOG": "error"}
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
        await_port(SERVED)
        ask(connections, requests // 10)
        before = sum(processor_time(process.pid) for process in processes[1:])
        latency = ask(connections, requests)
        after = sum(processor_time(process.pid) for process in processes[1:])
        return (after - before) / requests, latency
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def await_port(port):
    """Waits until a connection leads to a server that answers."""
    for _ in range(600):
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
    asked = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r'^"GET"(?:,"[\d.]+"){5},"([\d.]+)"', asked.stdout, re.M)
    return float(found.group(1))


def processor_time(pid):
    """Returns the processor time of a process, in µs."""
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1000


def cell(found):
    """Returns the medians of all rounds."""
    each, latency = (statistics.median(values) for values in zip(*found))
    return f"{each:.1f} µs | {latency:.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
