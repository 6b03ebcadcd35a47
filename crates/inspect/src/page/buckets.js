// Histogram buckets of lateness: their bounds, and quantiles.

import { duration } from './format.js';

export const BUCKETS = 128;

/** The number of buckets per octave. */
export const OCTAVE = 4;

/** The bounds of the buckets in nanoseconds. */
export class Bounds {
  /** `upper` are the upper bounds from the snapshot; the last one is null. */
  constructor(upper) {
    this.upper = upper.map((bound) => bound ?? Infinity);
  }

  from(bucket) {
    return bucket > 0 ? this.upper[bucket - 1] : 0;
  }

  to(bucket) {
    return this.upper[bucket];
  }

  /** Returns the upper bound of a bucket as text; accepts -1 for no bucket. */
  say(bucket) {
    if (bucket < 0) return '–';
    const to = this.to(bucket);
    return to === Infinity ? `>${duration(this.from(bucket))}` : duration(to);
  }

  /** Returns the position of a lateness on an axis where each bucket has length 1. */
  position(ns) {
    const bucket = this.upper.findIndex((bound) => ns < bound);
    const from = this.from(bucket);
    const to = this.to(bucket);
    return to === Infinity ? bucket : bucket + (ns - from) / (to - from);
  }
}

/**
 * Returns the bucket of quantile `q` of `counts[at..at + BUCKETS]`, or -1 if they are empty. Its
 * upper bound is what `LatenessHistogram::quantile` returns.
 */
export function quantile(counts, at, q) {
  let total = 0;
  for (let i = 0; i < BUCKETS; i++) total += counts[at + i];
  // Differences of fractions leave rounding errors.
  if (total < 1e-6) return -1;
  const wanted = total * q - 1e-9;
  let sum = 0;
  let last = -1;
  for (let i = 0; i < BUCKETS; i++) {
    if (counts[at + i] <= 0) continue;
    last = i;
    sum += counts[at + i];
    if (sum >= wanted) return i;
  }
  return last;
}
