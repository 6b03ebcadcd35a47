// The frames of the last ten minutes.

import { continues, Frame, isFrom, totals } from './frame.js';

/** The number of frames in ten minutes at four snapshots a second. */
export const CAPACITY = 2400;

export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.frames = [];
    this.latest = null;
    /** The number of dropped frames, which is also the number of `frames[0]`. */
    this.dropped = 0;
    this.origin = 0;
    this.counters = [];
  }

  /**
   * Adds a snapshot. Returns whether it continues the last one; otherwise the history starts anew.
   */
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
   * Drops frames older than ten minutes. Frames from number `looked` on are still shown, so they
   * stay, up to twice the usual number.
   */
  trim(looked) {
    const { length } = this.frames;
    const excess = Math.min(length - CAPACITY, Math.max(looked - this.dropped, length - 2 * CAPACITY));
    if (excess > 0) {
      this.frames.splice(0, excess);
      this.dropped += excess;
    }
  }

  /** Returns the number of the first frame that ends after `ms`. */
  since(ms) {
    const at = this.frames.findIndex((frame) => frame.end > ms);
    return this.dropped + (at < 0 ? this.frames.length : at);
  }

  frame(number) {
    return this.frames[number - this.dropped];
  }

  /** Returns the number after that of the newest frame. */
  get end() {
    return this.dropped + this.frames.length;
  }
}
