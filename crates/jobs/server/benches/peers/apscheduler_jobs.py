"""APScheduler: delayed jobs that come one after the other, and a backlog. See `run.py`.

It has fewer jobs than the others, at a tenth of their pace, as it would not keep up.
"""

import json
import sys
import tempfile
import threading
import time
from datetime import datetime, timezone

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

PACED = 2_000
BACKLOG = 2_000
PAYLOAD = "x" * 64
LATENESS = []
LOCK = threading.Lock()


def handle(due, _payload):
    with LOCK:
        LATENESS.append(time.time() - due)


def add(scheduler, times):
    start = time.time()
    for due in times:
        when = datetime.fromtimestamp(due, timezone.utc)
        scheduler.add_job(handle, "date", run_date=when, args=[due, PAYLOAD])
    return len(times) / (time.time() - start)


def wait(count):
    while len(LATENESS) < count:
        time.sleep(0.01)
    found = sorted(LATENESS)
    LATENESS.clear()
    return found


def main():
    with tempfile.TemporaryDirectory(prefix="durable-peers-") as path:
        store = SQLAlchemyJobStore(url=f"sqlite:///{path}/jobs.db")
        defaults = {"misfire_grace_time": None}
        scheduler = BackgroundScheduler(jobstores={"default": store}, job_defaults=defaults)
        before = time.process_time()
        scheduler.start(paused=True)
        start = time.time() + 60
        scheduled = add(scheduler, [start + number / 100 for number in range(PACED)])
        assert time.time() < start, "60 s are too short to schedule all"
        scheduler.resume()
        lateness = wait(PACED)
        scheduler.pause()
        start = time.time() + 60
        add(scheduler, [start] * BACKLOG)
        assert time.time() < start, "60 s are too short to schedule all"
        scheduler.resume()
        wait(BACKLOG)
        seconds = time.time() - start
        used = time.process_time() - before
        scheduler.shutdown(wait=False)
    found = {
        "paced": PACED,
        "backlog": BACKLOG,
        "p50": lateness[(PACED - 1) * 50 // 100] * 1e3,
        "p99": lateness[(PACED - 1) * 99 // 100] * 1e3,
        "scheduled": scheduled,
        "run": BACKLOG / seconds,
        "processor": used,
    }
    print(json.dumps(found))


if sys.argv[1:] != ["check"]:
    main()
