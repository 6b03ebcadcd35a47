// The view: a time range, a stage of lateness, and the end of the range, which is the present or
// the time of the pause.

import { Bounds } from './buckets.js';
import { Columns } from './columns.js';
import { entities, STAGES, totals } from './frame.js';
import { History } from './history.js';
import { Window } from './window.js';

/** The width of a column in each range, in seconds. A range has some hundred columns. */
const WIDTHS = { 30: 250, 120: 500, 600: 2000 };

/** The time over which the rates of single workers are computed, in ms. */
const RECENT_MS = 2000;

export class View {
  constructor() {
    this.history = new History();
    this.range = 30;
    this.stage = 'wake';
    this.paused = false;
    this.recent = [];
    this.snapshot = null;
  }

  /** Adds a snapshot. Returns whether there is something new to draw. */
  push(snapshot) {
    const same = this.history.push(snapshot);
    if (!same) {
      // Another process: the paused data no longer exists.
      this.recent = [];
      this.bounds = new Bounds(snapshot.bounds_ns);
      this.show(snapshot, this.history.end);
      this.rebuild();
      return true;
    }
    if (this.recent.at(-1) !== snapshot) this.recent.push(snapshot);
    while (this.recent.length > 2 && snapshot.at_ms - this.recent[0].at_ms > RECENT_MS) this.recent.shift();
    if (!this.paused) {
      this.show(snapshot, this.history.end);
      this.advance();
    }
    this.history.trim(this.sums.first);
    return !this.paused;
  }

  show(snapshot, end) {
    this.snapshot = snapshot;
    this.before = this.recent[0] ?? null;
    this.end = end;
    this.unixOffset = snapshot.unix_ms - snapshot.at_ms;
    this.totals = totals(snapshot);
  }

  get counters() {
    return this.history.counters;
  }

  /** Adds new frames. */
  advance() {
    const { history, columns, sums } = this;
    const from = Math.max(sums.end, history.dropped);
    for (let number = from; number < this.end; number++) columns.add(history.frame(number));
    sums.move(history, this.end, this.snapshot.at_ms - this.range * 1000);
  }

  /** Recomputes columns and sums from the history. */
  rebuild() {
    const { history, snapshot } = this;
    const width = WIDTHS[this.range];
    const shape = {
      stage: STAGES.indexOf(this.stage),
      entities: entities(snapshot).length,
      workers: snapshot.workers.length,
      counters: this.counters.length,
    };
    this.columns = new Columns({ ...shape, width, count: (this.range * 1000) / width, origin: history.origin });
    const first = Math.min(history.since(snapshot.at_ms - this.range * 1000), this.end);
    this.sums = new Window({ ...shape, first });
    this.advance();
  }

  choose(changes) {
    Object.assign(this, changes);
    if (this.snapshot) this.rebuild();
  }

  pause(paused) {
    this.paused = paused;
    if (paused || !this.snapshot) return;
    this.show(this.history.latest, this.history.end);
    this.rebuild();
  }
}
