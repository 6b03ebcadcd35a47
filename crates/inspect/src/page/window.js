// Sums over the visible range. New frames are added and old ones subtracted, so a snapshot costs
// the same in each range. Gaps count, too: what happened in them is known, only the time is not.

import { BUCKETS, quantile } from './buckets.js';

export class Window {
  constructor({ first, stage, entities, workers, counters }) {
    Object.assign(this, { first, end: first, stage, entities, workers });
    this.seconds = 0;
    this.counts = new Float64Array(counters);
    /** The buckets of each entity, followed by those of all together. */
    this.lateness = new Float64Array((entities + 1) * BUCKETS);
    this.steals = new Float64Array(entities * entities);
    this.rescues = new Float64Array(entities * entities);
  }

  /**
   * Adds the frames of `history` before number `end`, and subtracts those that ended by `since`.
   */
  move(history, end, since) {
    while (this.end < end) this.count(history.frame(this.end++), 1);
    while (this.first < this.end && history.frame(this.first).end <= since) {
      this.count(history.frame(this.first++), -1);
    }
  }

  count(frame, sign) {
    this.seconds += sign * frame.seconds;
    frame.counts.forEach((count, i) => { this.counts[i] += sign * count; });
    for (let entity = 0; entity < this.entities; entity++) {
      frame.addHistogram(this.stage, entity, this.lateness, entity * BUCKETS, sign);
      frame.addHistogram(this.stage, entity, this.lateness, this.entities * BUCKETS, sign);
    }
    const cells = (sums, grown) => {
      for (let i = 0; i < grown.length; i += 2) sums[grown[i]] += sign * grown[i + 1];
    };
    cells(this.steals, frame.steals);
    cells(this.rescues, frame.rescues);
  }

  /** Returns the rate per second of a count over the range. */
  perSecond(count) {
    return this.seconds > 1e-6 ? count / this.seconds : 0;
  }

  /** Returns the bucket of a quantile of an entity, or of all without one; -1 if there is none. */
  quantile(q, entity = this.entities) {
    return quantile(this.lateness, entity * BUCKETS, q);
  }

  /** Returns the number of timers in an entity's histogram, or in all of them. */
  timers(entity = this.entities) {
    let sum = 0;
    for (let i = 0; i < BUCKETS; i++) sum += this.lateness[entity * BUCKETS + i];
    return sum;
  }
}
