"""Makes orders, each with a job, by psycopg: CONFIG FIRST END. Connects again when it is killed."""

import json
import sys
import time

import psycopg

config, first, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = None
for order in range(first, end):
    try:
        connection = connection or psycopg.connect(config)
        with connection.transaction(force_rollback=order % 3 == 0):
            connection.execute("INSERT INTO orders VALUES (%s)", [order])
            delay = "0" if order % 2 else "1 hour"
            job = [str(order), json.dumps({"order": str(order)}), delay]
            added = connection.execute("SELECT jobs_schedule(%s, %s, delay => %s)", job)
            assert added.fetchone() == (True,)
        print("committed" if order % 3 else "rolled back", order, flush=True)
    except psycopg.OperationalError:
        connection = None
        time.sleep(0.05)
