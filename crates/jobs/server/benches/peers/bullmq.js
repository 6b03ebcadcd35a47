// BullMQ: delayed jobs that come one after the other, and a backlog. See `run.py`.

const { Queue, Worker } = require("bullmq");

if (process.argv[2] === "check") process.exit(0);

const connection = { host: "127.0.0.1", port: Number(process.argv[2]) };
const PACED = 20000;
const BACKLOG = 20000;
const CHUNK = 256;
const PAYLOAD = "x".repeat(64);

const now = () => performance.timeOrigin + performance.now();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Adds jobs that are due at these times, in milliseconds. Returns the jobs a second. */
async function schedule(queue, times) {
  const start = now();
  for (let first = 0; first < times.length; first += CHUNK) {
    const added = Date.now();
    const jobs = times.slice(first, first + CHUNK).map((due) => ({
      name: "job",
      data: { due, payload: PAYLOAD },
      opts: { timestamp: added, delay: due - added, removeOnComplete: true },
    }));
    await queue.addBulk(jobs);
  }
  return times.length / ((now() - start) / 1000);
}

/** Runs so many jobs. Returns their lateness in order, and when the last one ended. */
async function run(name, count, start) {
  const lateness = [];
  let ended = 0;
  let last;
  const done = new Promise((resolve) => (last = resolve));
  const handle = async (job) => lateness.push(now() - job.data.due);
  const worker = new Worker(name, handle, { connection, concurrency: 256 });
  worker.on("completed", () => ++ended === count && last(now()));
  const end = await done;
  await worker.close();
  lateness.sort((a, b) => a - b);
  return { lateness, seconds: (end - start) / 1000 };
}

async function main() {
  const before = process.cpuUsage();
  const paced = new Queue("paced", { connection });
  let start = Math.ceil(now()) + 20000;
  const times = Array.from({ length: PACED }, (_, number) => start + number);
  const scheduled = await schedule(paced, times);
  if (now() > start) throw new Error("20 s are too short to schedule all");
  const { lateness } = await run("paced", PACED, start);

  const backlog = new Queue("backlog", { connection });
  start = Math.ceil(now()) + 20000;
  await schedule(backlog, Array(BACKLOG).fill(start));
  if (now() > start) throw new Error("20 s are too short to schedule all");
  const { seconds } = await run("backlog", BACKLOG, start);

  const used = process.cpuUsage(before);
  const at = (part) => lateness[Math.floor(((PACED - 1) * part) / 100)];
  const found = {
    paced: PACED,
    backlog: BACKLOG,
    p50: at(50),
    p99: at(99),
    scheduled,
    run: BACKLOG / seconds,
    processor: (used.user + used.system) / 1e6,
  };
  console.log(JSON.stringify(found));
  await sleep(10);
  process.exit(0);
}

main();
