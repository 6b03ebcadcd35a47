// The list of tasks, which the page asks for while it is on the screen.

import { duration, exact, short } from './format.js';
import { Rows } from './rows.js';

const PERIOD_MS = 1000;

/** From this time on, a poll is shown by itself, in ms. */
const LONG_MS = 10;

const ms = (value) => (value > 0 ? duration(value * 1e6) : '0');

export class TaskList {
  /** `isHeld()` tells whether the page is paused. */
  constructor(find, isHeld) {
    this.isHeld = isHeld;
    this.section = find('tasks');
    this.table = find('task-table');
    this.hint = find('tasks-hint');
    this.more = find('more-tasks');
    this.rows = new Rows(find('task-rows'), ['num', 'state', 'num', 'num', 'num', 'job', 'place', '']);
    this.order = 'busy';
    this.isShown = false;
    this.asked = false;
    new IntersectionObserver((entries) => {
      this.isShown = entries.at(-1).isIntersecting;
      if (this.isShown) this.update();
    }).observe(this.section);
    const buttons = this.table.querySelectorAll('[data-order]');
    buttons.forEach((button) => button.addEventListener('click', () => {
      this.order = button.dataset.order;
      buttons.forEach((other) => {
        const sorted = other === button ? 'descending' : 'none';
        other.closest('th').setAttribute('aria-sort', sorted);
      });
      this.ask();
    }));
    setInterval(() => this.update(), PERIOD_MS);
  }

  /** Asks for the list once, and then while it is on the screen. */
  update() {
    if (document.visibilityState === 'hidden' || this.isHeld()) return;
    if (this.isShown || !this.asked) this.ask();
  }

  async ask() {
    const { order } = this;
    try {
      const answer = await fetch(`tasks.json?order=${order}`);
      if (!answer.ok) return;
      const list = await answer.json();
      this.asked = true;
      if (order === this.order) this.draw(list);
    } catch {
      // The stream of snapshots says that the program cannot be reached.
    }
  }

  draw({ alive, listed, seen, timed_ms: timed, tasks }) {
    const times = timed === null ? 'times are measured while this list is on the screen'
      : `polls and times: of the last ${ms(timed)}`;
    this.hint.textContent = `${exact(alive)} alive; ${times}`;
    this.table.hidden = tasks.length === 0;
    this.rows.show(tasks.map((task) => {
      const { state, worker, poll_ms: poll, is_older: isOlder } = task;
      const on = worker === null ? '' : state === 'running' ? ` on worker ${worker}` : `, worker ${worker} only`;
      const since = poll !== null && poll >= LONG_MS ? ` for ${ms(poll)}` : '';
      const measured = (value, form) => (timed === null ? '–' : form(value));
      return [
        task.id, `${state}${on}${since}`, measured(task.busy_ms, ms), measured(task.polls, short),
        `${isOlder ? '> ' : ''}${ms(task.age_ms)}`, task.name, task.spawned, task.waits_for.join(', '),
      ];
    }), (row, i) => {
      row.dataset.state = tasks[i].state;
    });
    const unlisted = Math.max(alive - listed, 0);
    this.more.textContent = [
      listed > tasks.length ? `And ${exact(listed - tasks.length)} more${seen < listed ? `; the list is of ${exact(seen)} of them` : ''}.` : '',
      unlisted > 0 ? `${exact(unlisted)} not listed: new tasks, which have not waited yet, and blocking jobs.` : '',
      alive === 0 ? 'There are no tasks.' : '',
    ].filter(Boolean).join(' ');
  }
}
