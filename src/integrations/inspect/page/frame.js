// What happened between two snapshots, in little memory: ten minutes of these are kept.


export const STAGES = ['wake', 'queue', 'rescued'];
export const ACTIVITIES = ['firing', 'running', 'polling', 'stealing', 'parked'];

/** Values of a moment, which are shown over time. */
export const GAUGES = ['pending', 'garbage'];

/**
 * After so long without a snapshot nothing is known of the time between: no line is drawn over it. At least, and
 * not while fewer than so many snapshots are missing.
 */
const GAP_MS = 3000;
const MISSING = 3;

/** Where nothing grew, all frames share it: an array of its own would be some hundred bytes of nothing. */
const NOTHING = new Uint32Array(0);

// A bucket and its count share 32 bits.
const COUNT_BITS = 25;
const MAX_COUNT = 2 ** COUNT_BITS - 1;

/** Workers, and the helpers as one more: the rows of heat maps. */
export function entities(snapshot) {
  return [...snapshot.workers, snapshot.helpers];
}

/** All counters, summed up over who counts. */
export function totals(snapshot) {
  const sums = {};
  for (const { counts } of [...snapshot.workers, snapshot.helpers, snapshot.clocks]) {
    for (const [name, value] of Object.entries(counts)) {
      if (typeof value === 'number') sums[name] = (sums[name] ?? 0) + value;
    }
  }
  return sums;
}

/** Whether both are told by the same inspector. A pid may come again: in containers all are 1. */
export function isFrom(one, other) {
  return one.instance === other.instance && one.pid === other.pid;
}

/** Whether `next` continues what `previous` began: the same runtime, seen later. */
export function continues(previous, next) {
  return isFrom(previous, next)
    && previous.workers.length === next.workers.length
    && next.at_ms > previous.at_ms;
}

/** A gauge, summed up over workers and clocks. */
export function gauge(snapshot, name) {
  const { wall, boot } = snapshot.clocks;
  return snapshot.workers.reduce((sum, worker) => sum + worker[name], (wall?.[name] ?? 0) + (boot?.[name] ?? 0));
}

/** Adds buckets that grew to `grown`, each as one number. */
function growth(before, after, grown) {
  const had = new Map(before.buckets);
  for (const [bucket, count] of after.buckets) {
    const more = count - (had.get(bucket) ?? 0);
    if (more > 0) grown.push(bucket * 2 ** COUNT_BITS + Math.min(more, MAX_COUNT));
  }
}

/** Cells that grew, as pairs of (row * workers + column, by how much). */
function cells(before, after, field) {
  const grown = [];
  const width = before.length;
  after.forEach((entity, row) => {
    (entity[field] ?? []).forEach((count, column) => {
      const more = count - (before[row][field]?.[column] ?? 0);
      if (more > 0) grown.push(row * width + column, more);
    });
  });
  return packed(grown);
}

function packed(numbers) {
  return numbers.length > 0 ? Uint32Array.from(numbers) : NOTHING;
}

/** The differences between two snapshots of the same runtime. */
export class Frame {
  constructor(previous, next, counters) {
    this.start = previous.at_ms;
    this.end = next.at_ms;
    this.gap = this.end - this.start > Math.max(GAP_MS, MISSING * next.period_ms);
    const before = entities(previous);
    const after = entities(next);
    const grown = [];
    // Where each histogram begins in `grown`: those of the first stage, one for each entity, then the next stage's.
    this.begins = new Uint32Array(STAGES.length * after.length + 1);
    STAGES.forEach((stage, s) => after.forEach((entity, i) => {
      growth(before[i].lateness[stage], entity.lateness[stage], grown);
      this.begins[s * after.length + i + 1] = grown.length;
    }));
    this.grown = packed(grown);
    this.samples = Uint16Array.from(next.workers.flatMap((worker, i) =>
      ACTIVITIES.map((name) => Math.min(Math.max(worker.samples[name] - previous.workers[i].samples[name], 0), 65535))));
    const [then, now] = [totals(previous), totals(next)];
    this.counts = Float64Array.from(counters, (name) => Math.max(now[name] - (then[name] ?? 0), 0));
    this.gauges = Float64Array.from(GAUGES, (name) => gauge(next, name));
    this.steals = cells(before, after, 'steals_from');
    this.rescues = cells(before, after, 'rescued_from');
  }

  get seconds() {
    return (this.end - this.start) / 1000;
  }

  /** Adds `sign` times a histogram to `counts[at..at + BUCKETS]`; answers whether there was anything to add. */
  addHistogram(stage, entity, counts, at, sign) {
    const index = stage * ((this.begins.length - 1) / STAGES.length) + entity;
    const end = this.begins[index + 1];
    for (let i = this.begins[index]; i < end; i++) {
      const packed = this.grown[i];
      counts[at + (packed >>> COUNT_BITS)] += sign * (packed & MAX_COUNT);
    }
    return end > this.begins[index];
  }
}

