// Sums over the range that is looked at. Frames are added in front and taken off behind, so that a snapshot
// costs the same in each range. Gaps count as well: what happened in them is known, only not when.

import { BUCKETS, quantile } from './buckets.js';

export class Window {
  constructor({ first, stage, entities, workers, counters }) {
    Object.assign(this, { first, end: first, stage, entities, workers });
    this.seconds = 0;
    this.counts = new Float64Array(counters);
    /** Each entity's buckets, and behind them those of all. */
    this.lateness = new Float64Array((entities + 1) * BUCKETS);
    this.steals = new Float64Array(entities * entities);
    this.rescues = new Float64Array(entities * entities);
  }

  /** Moves on to the frames of `history` before number `end`, and leaves behind those that ended by `since`. */
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

  /** So many per second, of a count over the range. */
  perSecond(count) {
    return this.seconds > 1e-6 ? count / this.seconds : 0;
  }

  /** The bucket of a quantile of an entity's lateness, or of all if none is given; -1 if there is none. */
  quantile(q, entity = this.entities) {
    return quantile(this.lateness, entity * BUCKETS, q);
  }

  /** How many timers an entity's histogram has, or all of them. */
  timers(entity = this.entities) {
    let sum = 0;
    for (let i = 0; i < BUCKETS; i++) sum += this.lateness[entity * BUCKETS + i];
    return sum;
  }
}
