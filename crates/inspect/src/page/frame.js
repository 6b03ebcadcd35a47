// The difference between two snapshots, in little memory: ten minutes of these are kept.


export const STAGES = ['wake', 'queue', 'rescued'];
export const ACTIVITIES = ['firing', 'running', 'polling', 'stealing', 'parked'];

/** Gauges that are shown over time. */
export const GAUGES = ['pending', 'garbage'];

/**
 * The shortest gap: after this time without a snapshot, and at least `MISSING` missing snapshots,
 * no line is drawn over it.
 */
const GAP_MS = 3000;
const MISSING = 3;

/** A shared empty array: most frames have no growth, and an array takes some hundred bytes. */
const NOTHING = new Uint32Array(0);

// A bucket index and its count share 32 bits.
const COUNT_BITS = 25;
const MAX_COUNT = 2 ** COUNT_BITS - 1;

/** Returns the workers, and the helpers as one more entity: the rows of heat maps. */
export function entities(snapshot) {
  return [...snapshot.workers, snapshot.helpers];
}

/** Returns the sum of each counter over workers, helpers and clocks. */
export function totals(snapshot) {
  const sums = {};
  for (const { counts } of [...snapshot.workers, snapshot.helpers, snapshot.clocks]) {
    for (const [name, value] of Object.entries(counts)) {
      if (typeof value === 'number') sums[name] = (sums[name] ?? 0) + value;
    }
  }
  return sums;
}

/**
 * Returns whether both snapshots are of one inspector. The pid does not tell: in containers it is
 * always 1.
 */
export function isFrom(one, other) {
  return one.instance === other.instance && one.pid === other.pid;
}

/** Returns whether `next` is a later snapshot of the runtime of `previous`. */
export function continues(previous, next) {
  return isFrom(previous, next)
    && previous.workers.length === next.workers.length
    && next.at_ms > previous.at_ms;
}

/** Returns the sum of a gauge over workers and clocks. */
export function gauge(snapshot, name) {
  const { wall, boot } = snapshot.clocks;
  return snapshot.workers.reduce((sum, worker) => sum + worker[name], (wall?.[name] ?? 0) + (boot?.[name] ?? 0));
}

/** Appends the buckets that grew to `grown`, each packed into one number. */
function growth(before, after, grown) {
  const had = new Map(before.buckets);
  for (const [bucket, count] of after.buckets) {
    const more = count - (had.get(bucket) ?? 0);
    if (more > 0) grown.push(bucket * 2 ** COUNT_BITS + Math.min(more, MAX_COUNT));
  }
}

/** Returns the cells that grew, as pairs of (row * workers + column, growth). */
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
    // The start of each histogram in `grown`: first all entities of the first stage, then the next
    // stage.
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

  /**
   * Adds `sign` times a histogram to `counts[at..at + BUCKETS]`. Returns whether there was anything
   * to add.
   */
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

