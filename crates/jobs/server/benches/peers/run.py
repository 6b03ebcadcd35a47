#!/usr/bin/env python3
"""Measures other queues of delayed jobs in the way of `benches/queues.rs`.

It installs nothing. Rows whose software is not there are left out, with what they need:

    apt-get install redis-server nodejs npm
    npm install --prefix DIR bullmq ioredis@5
    pip install arq apscheduler sqlalchemy

Run it with `NODE_PATH=DIR/node_modules python3 benches/peers/run.py`. Arguments choose rows by
parts of their names.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Redis:
    """A server of its own, whose log of commands is synced as the argument says."""

    def __init__(self, sync):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.dir = tempfile.TemporaryDirectory(prefix="durable-peers-")
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir"]
        command += [self.dir.name, "--save", "", "--appendonly", "yes", "--appendfsync", sync]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while True:
            try:
                self.processor_time()
                return
            except OSError:
                time.sleep(0.05)

    def processor_time(self):
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"INFO cpu\r\nQUIT\r\n")
            text = b"".join(iter(lambda: client.recv(4096), b"")).decode()
        fields = dict(line.split(":") for line in text.splitlines() if ":" in line)
        names = ["sys", "user", "sys_children", "user_children"]
        return sum(float(fields["used_cpu_" + name]) for name in names)

    def stop(self):
        self.server.terminate()
        self.server.wait()
        self.dir.cleanup()


def measure(name, command, redis=None):
    before = redis.processor_time() if redis else 0
    port = [str(redis.port)] if redis else []
    ended = subprocess.run(command + port, stdout=subprocess.PIPE, text=True)
    if ended.returncode != 0:
        print(f"{name:<34} failed")
        return
    found = json.loads(ended.stdout.splitlines()[-1])
    cost = found["processor"] + (redis.processor_time() - before if redis else 0)
    jobs = found["paced"] + found["backlog"]
    print(
        f"{name:<34} {found['p50']:>10.2f} {found['p99']:>10.2f} {found['scheduled']:>12.0f}"
        f" {found['run']:>9.0f} {cost / jobs * 1e6:>9.0f}",
        flush=True,
    )


def has(command):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.run(command, **quiet).returncode == 0


def main():
    rows = [
        ("BullMQ, synced each second", ["node", str(HERE / "bullmq.js")], "everysec"),
        ("BullMQ, each command synced", ["node", str(HERE / "bullmq.js")], "always"),
        ("arq, synced each second", [sys.executable, str(HERE / "arq_jobs.py")], "everysec"),
        ("APScheduler on SQLite", [sys.executable, str(HERE / "apscheduler_jobs.py")], None),
    ]
    columns = ["p50 ms", "p99 ms", "scheduled/s", "run/s", "µs/job"]
    print("{:<34} {:>10} {:>10} {:>12} {:>9} {:>9}".format("", *columns))
    for name, command, sync in rows:
        if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
            continue
        if not has(command + ["check"]) or (sync and not shutil.which("redis-server")):
            print(f"{name:<34} is not there: see the head of {os.path.basename(__file__)}")
            continue
        redis = Redis(sync) if sync else None
        try:
            measure(name, command, redis)
        finally:
            if redis:
                redis.stop()


main()
