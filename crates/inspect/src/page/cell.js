// The panel of a cell of the heat map: its slowest timers, and why they were late.

import { clock, duration, exact } from './format.js';
import { Rows } from './rows.js';

/** How long to wait before asking again for timers of the present, in ms. */
const AGAIN_MS = 700;

/** What takes less is not recorded in light mode, in ns. */
const NOTED = 200e3;

/** Explains why there are no timers of a cell. */
function why({ recording, since_ms: since }, { to, begins }) {
  if (recording === 'off') return 'The flight recorder is off, so no timer is kept.';
  if (to <= NOTED && recording !== 'full') {
    return 'The flight recorder keeps timers that were 200 µs late or later. With full recording it keeps all.';
  }
  if (since === null || begins < since) return 'These timers are not kept: no page was open then.';
  return 'These timers are not kept any more, or were not among the slowest of their moment.';
}

export class CellPanel {
  /** `closed` is called when the user closes the panel. */
  constructor(find, closed) {
    this.element = find('cell');
    this.title = find('cell-title');
    this.note = find('cell-note');
    this.rows = new Rows(find('cell-rows'), ['num', '', 'job', 'place', 'why']);
    this.closed = closed;
    this.cell = null;
    find('cell-close').addEventListener('click', () => this.close());
    addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.cell) this.close();
    });
  }

  close() {
    this.cell = null;
    this.element.hidden = true;
    this.closed();
  }

  /** Shows the timers of a cell. `unixOffset` converts the inspector's time to Unix time. */
  async show(cell, stage, unixOffset) {
    this.cell = cell;
    const timers = cell.count === 1 ? '1 timer' : `${exact(cell.count)} timers`;
    this.title.textContent = `${cell.place}: ${timers} ${stage}-late by ${cell.lateness}`;
    this.element.hidden = false;
    if (cell.count === 0) return this.draw([], 'No timer was so late then.');
    this.draw([], 'Asking …');
    const query = new URLSearchParams({
      stage, worker: cell.worker, bucket: cell.bucket, from_ms: cell.begins, to_ms: cell.ends,
    });
    for (const last of [false, true]) {
      const answer = await this.ask(query);
      // The user may have chosen another cell meanwhile.
      if (this.cell !== cell) return;
      if (!answer) return this.draw([], 'The program did not answer.');
      const { timers: found } = answer;
      if (found.length > 0) return this.tell(cell, answer, unixOffset);
      // The timers of the last moment are read with the next snapshot.
      if (last) return this.draw([], why(answer, cell));
      await new Promise((done) => { setTimeout(done, AGAIN_MS); });
    }
  }

  async ask(query) {
    try {
      const answer = await fetch(`late.json?${query}`);
      return answer.ok ? await answer.json() : null;
    } catch {
      return null;
    }
  }

  tell(cell, { timers, more }, unixOffset) {
    const rows = timers.map(({ at_ms: at, late_ns: late, all_ns: all, has_run: hasRun, timer, why: cause }) => [
      duration(late), clock(at + unixOffset, true), timer?.name ?? 'not known', timer?.spawned ?? '',
      all > late * 1.01 ? `${duration(all)} in all: ${cause}` : hasRun ? cause : `not seen to run; ${cause}`,
    ]);
    const kept = timers.length + more;
    const note = more > 0 ? `The ${timers.length} slowest of ${exact(kept)} that are kept.`
      : kept < cell.count ? `${exact(kept)} of them ${kept === 1 ? 'is' : 'are'} kept: the slowest ones.` : '';
    this.draw(rows, note);
  }

  draw(rows, note) {
    this.rows.show(rows);
    this.rows.body.parentElement.hidden = rows.length === 0;
    this.note.textContent = note;
    this.note.hidden = note === '';
  }
}
