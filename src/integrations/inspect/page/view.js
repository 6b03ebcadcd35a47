// What is looked at: a range, a stage of lateness, and the moment at which it ends, which is now or when it was
// paused.

import { Bounds } from './buckets.js';
import { Columns } from './columns.js';
import { entities, STAGES, totals } from './frame.js';
import { History } from './history.js';
import { Window } from './window.js';

/** How wide columns are in each range (in seconds): some hundreds of them, of whole snapshots each. */
const WIDTHS = { 30: 250, 120: 500, 600: 2000 };

/** Rates of single workers are over so long, in ms. */
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

  /** Takes a snapshot as it comes; answers whether there is something new to draw. */
  push(snapshot) {
    const same = this.history.push(snapshot);
    if (!same) {
      // Another process: what was paused is gone.
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

  /** Takes the frames that came. */
  advance() {
    const { history, columns, sums } = this;
    const from = Math.max(sums.end, history.dropped);
    for (let number = from; number < this.end; number++) columns.add(history.frame(number));
    sums.move(history, this.end, this.snapshot.at_ms - this.range * 1000);
  }

  /** Makes columns and sums anew from the history. */
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
