// The last ten minutes.

import { continues, Frame, isFrom, totals } from './frame.js';

/** Ten minutes at four snapshots a second. */
export const CAPACITY = 2400;

export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.frames = [];
    this.latest = null;
    /** How many frames were dropped in front: the number of `frames[0]`. */
    this.dropped = 0;
    this.origin = 0;
    this.counters = [];
  }

  /** Takes the next snapshot, and answers whether it continues the last one; if not, all is new. */
  push(snapshot) {
    const previous = this.latest;
    if (previous && isFrom(previous, snapshot) && snapshot.at_ms === previous.at_ms) return true;
    const same = previous !== null && continues(previous, snapshot);
    if (same) {
      this.frames.push(new Frame(previous, snapshot, this.counters));
    } else {
      this.clear();
      this.origin = snapshot.at_ms;
      this.counters = Object.keys(totals(snapshot));
    }
    this.latest = snapshot;
    return same;
  }

  /**
   * Drops what is older than ten minutes. Frames from number `looked` on are still looked at: they stay, but
   * not more than twice as many.
   */
  trim(looked) {
    const { length } = this.frames;
    const excess = Math.min(length - CAPACITY, Math.max(looked - this.dropped, length - 2 * CAPACITY));
    if (excess > 0) {
      this.frames.splice(0, excess);
      this.dropped += excess;
    }
  }

  /** The number of the first frame that ends after `ms`. */
  since(ms) {
    const at = this.frames.findIndex((frame) => frame.end > ms);
    return this.dropped + (at < 0 ? this.frames.length : at);
  }

  frame(number) {
    return this.frames[number - this.dropped];
  }

  /** One more than the number of the newest frame. */
  get end() {
    return this.dropped + this.frames.length;
  }
}
