// The visible range as columns of equal time, from which everything is drawn. The columns form a
// ring: new ones overwrite the oldest.

import { BUCKETS, quantile } from './buckets.js';
import { ACTIVITIES, GAUGES } from './frame.js';

export class Columns {
  /**
   * `width` is in ms, `count` is the number of columns, and `origin` is the start of column 0 in
   * ms. `stage` is the stage of lateness; `entities`, `workers` and `counters` are numbers.
   */
  constructor({ width, count, origin, stage, entities, workers, counters }) {
    Object.assign(this, { width, count, origin, stage, entities, workers, counters });
    /** The newest column. */
    this.last = -1;
    /** The oldest column written since `clean`. */
    this.dirty = 0;
    this.seconds = new Float32Array(count);
    this.counts = new Float64Array(count * counters);
    this.gauges = new Float64Array(count * GAUGES.length);
    this.samples = new Float32Array(count * workers * ACTIVITIES.length);
    this.lateness = new Float32Array(count * entities * BUCKETS);
    this.median = new Int16Array(count * entities).fill(-1);
    this.high = new Int16Array(count * entities).fill(-1);
    // For each column, cache its largest cell and the range of its buckets that are not empty.
    this.greatest = new Float32Array(count);
    this.lowest = new Int16Array(count).fill(BUCKETS);
    this.highest = new Int16Array(count).fill(-1);
    // For each column, when the first of its frames begins and the last one ends.
    this.begins = new Float64Array(count).fill(Infinity);
    this.ends = new Float64Array(count).fill(-Infinity);
  }

  /** The oldest column. */
  get first() {
    return this.last - this.count + 1;
  }

  slot(column) {
    return ((column % this.count) + this.count) % this.count;
  }

  /** Returns whether a column has data. */
  known(column) {
    return column >= Math.max(this.first, 0) && column <= this.last && this.seconds[this.slot(column)] > 0;
  }

  /** Returns the start time of a column. */
  start(column) {
    return this.origin + column * this.width;
  }

  clean() {
    this.dirty = this.last + 1;
  }

  /** Adds a frame to the columns that it spans. Rounds away the jitter of snapshots. */
  add(frame) {
    let from = Math.round((frame.start - this.origin) / this.width);
    let to = Math.round((frame.end - this.origin) / this.width);
    if (from >= to) {
      from = Math.floor((frame.start + frame.end - 2 * this.origin) / 2 / this.width);
      to = from + 1;
    }
    while (this.last < to - 1) {
      // A gap longer than the whole range needs to clear each column only once.
      this.last = Math.max(this.last + 1, to - this.count);
      this.clear(this.slot(this.last));
    }
    this.dirty = Math.min(this.dirty, from);
    if (frame.gap) return;
    for (let column = Math.max(from, this.first); column < to; column++) {
      this.put(this.slot(column), frame, 1 / (to - from));
    }
  }

  clear(slot) {
    const wipe = (array, size, value = 0) => array.fill(value, slot * size, (slot + 1) * size);
    wipe(this.seconds, 1);
    wipe(this.counts, this.counters);
    wipe(this.gauges, GAUGES.length);
    wipe(this.samples, this.workers * ACTIVITIES.length);
    wipe(this.lateness, this.entities * BUCKETS);
    wipe(this.median, this.entities, -1);
    wipe(this.high, this.entities, -1);
    wipe(this.greatest, 1);
    wipe(this.lowest, 1, BUCKETS);
    wipe(this.highest, 1, -1);
    wipe(this.begins, 1, Infinity);
    wipe(this.ends, 1, -Infinity);
  }

  put(slot, frame, share) {
    this.seconds[slot] += frame.seconds * share;
    this.begins[slot] = Math.min(this.begins[slot], frame.start);
    this.ends[slot] = Math.max(this.ends[slot], frame.end);
    frame.counts.forEach((count, i) => { this.counts[slot * this.counters + i] += count * share; });
    this.gauges.set(frame.gauges, slot * GAUGES.length);
    const samples = slot * frame.samples.length;
    frame.samples.forEach((count, i) => { this.samples[samples + i] += count * share; });
    for (let entity = 0; entity < this.entities; entity++) {
      const at = this.cell(entity, slot);
      if (frame.addHistogram(this.stage, entity, this.lateness, at, share)) this.summarize(entity, slot, at);
    }
  }

  summarize(entity, slot, at) {
    for (let bucket = 0; bucket < BUCKETS; bucket++) {
      const count = this.lateness[at + bucket];
      if (count === 0) continue;
      this.greatest[slot] = Math.max(this.greatest[slot], count);
      this.lowest[slot] = Math.min(this.lowest[slot], bucket);
      this.highest[slot] = Math.max(this.highest[slot], bucket);
    }
    this.median[slot * this.entities + entity] = quantile(this.lateness, at, 0.5);
    this.high[slot * this.entities + entity] = quantile(this.lateness, at, 0.99);
  }

  /** Returns the index in `lateness` of the first bucket of an entity's column. */
  cell(entity, slot) {
    return (slot * this.entities + entity) * BUCKETS;
  }

  /** Returns the largest cell of all columns. */
  peak() {
    return this.greatest.reduce((a, b) => Math.max(a, b), 0);
  }

  /** Returns the range of buckets that are not empty in any column, or null. */
  span() {
    const low = this.lowest.reduce((a, b) => Math.min(a, b), BUCKETS);
    const high = this.highest.reduce((a, b) => Math.max(a, b), -1);
    return high < 0 ? null : { low, high };
  }

  /** Returns the rate of a counter in a column per second; NaN without data. */
  rate(counter, column) {
    if (!this.known(column)) return NaN;
    const slot = this.slot(column);
    return this.counts[slot * this.counters + counter] / this.seconds[slot];
  }

  /** Returns a gauge at the end of a column; NaN without data. */
  gauge(gauge, column) {
    return this.known(column) ? this.gauges[this.slot(column) * GAUGES.length + gauge] : NaN;
  }
}
