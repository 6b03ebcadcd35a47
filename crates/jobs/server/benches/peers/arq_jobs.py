"""arq: delayed jobs that come one after the other, and a backlog. See `run.py`."""

import asyncio
import json
import sys
import time
from datetime import datetime, timezone

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

PACED = 20_000
BACKLOG = 20_000
CHUNK = 256
PAYLOAD = "x" * 64


async def schedule(pool, queue, times):
    """Adds jobs that are due at these times. Returns the jobs a second."""
    start = time.time()
    for first in range(0, len(times), CHUNK):
        adds = [
            pool.enqueue_job(
                "handle",
                due,
                PAYLOAD,
                _queue_name=queue,
                _defer_until=datetime.fromtimestamp(due, timezone.utc),
            )
            for due in times[first : first + CHUNK]
        ]
        await asyncio.gather(*adds)
    return len(times) / (time.time() - start)


async def run(settings, queue, count, start):
    """Runs so many jobs. Returns their lateness in order, and how long they took."""
    lateness = []
    ended = []

    async def handle(_, due, _payload):
        lateness.append(time.time() - due)

    async def end(_):
        ended.append(time.time())

    worker = Worker(
        functions=[func(handle, name="handle")],
        after_job_end=end,
        queue_name=queue,
        redis_settings=settings,
        max_jobs=256,
        keep_result=0,
        handle_signals=False,
    )
    task = asyncio.create_task(worker.main())
    while len(ended) < count:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await worker.close()
    return sorted(lateness), ended[-1] - start


async def main():
    settings = RedisSettings(host="127.0.0.1", port=int(sys.argv[1]))
    before = time.process_time()
    pool = await create_pool(settings)
    start = time.time() + 20
    scheduled = await schedule(pool, "paced", [start + number / 1000 for number in range(PACED)])
    assert time.time() < start, "20 s are too short to schedule all"
    lateness, _ = await run(settings, "paced", PACED, start)
    start = time.time() + 20
    await schedule(pool, "backlog", [start] * BACKLOG)
    assert time.time() < start, "20 s are too short to schedule all"
    _, seconds = await run(settings, "backlog", BACKLOG, start)
    found = {
        "paced": PACED,
        "backlog": BACKLOG,
        "p50": lateness[(PACED - 1) * 50 // 100] * 1e3,
        "p99": lateness[(PACED - 1) * 99 // 100] * 1e3,
        "scheduled": scheduled,
        "run": BACKLOG / seconds,
        "processor": time.process_time() - before,
    }
    print(json.dumps(found))


if sys.argv[1] != "check":
    asyncio.run(main())
