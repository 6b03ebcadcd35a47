// The buckets of lateness: what they span, and quantiles over them.

import { duration } from './format.js';

export const BUCKETS = 128;

/** Buckets to the octave. */
export const OCTAVE = 4;

/** What each bucket spans, in nanoseconds. */
export class Bounds {
  /** `upper`: the upper bounds as the snapshot has them, the last being null. */
  constructor(upper) {
    this.upper = upper.map((bound) => bound ?? Infinity);
  }

  from(bucket) {
    return bucket > 0 ? this.upper[bucket - 1] : 0;
  }

  to(bucket) {
    return this.upper[bucket];
  }

  /** The upper bound of a bucket, in words; of none (-1), too. */
  say(bucket) {
    if (bucket < 0) return '–';
    const to = this.to(bucket);
    return to === Infinity ? `>${duration(this.from(bucket))}` : duration(to);
  }

  /** Where a lateness is on an axis on which each bucket has the length 1. */
  position(ns) {
    const bucket = this.upper.findIndex((bound) => ns < bound);
    const from = this.from(bucket);
    const to = this.to(bucket);
    return to === Infinity ? bucket : bucket + (ns - from) / (to - from);
  }
}

/**
 * The bucket in which quantile `q` of `counts[at..at + BUCKETS]` lies, or -1 if they are empty: the one whose
 * upper bound `LatenessHistogram::quantile` answers.
 */
export function quantile(counts, at, q) {
  let total = 0;
  for (let i = 0; i < BUCKETS; i++) total += counts[at + i];
  // Differences of fractions leave dust.
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
