// The stacks of stalls. Data of the runtime is inserted as text, never as HTML.

import { exact } from './format.js';

/** The most stacks of a job. */
const STACKS = 5;

/** Functions of libraries, and of the kernel, begin like this. The line of the user is further out. */
const OF_LIBRARIES = /^[<&(]*((std|core|alloc)::|\[|[^: ]+( at |$))/;

/** One element for each stack of a job, which opens. One that is open stays open. */
export class Stacks {
  constructor(element) {
    this.element = element;
  }

  /** `groups` is a list of the stalls of each job. `stacks` is a list of lists of functions. */
  show(groups, stacks) {
    const rows = groups.flatMap((stalls) => {
      const equal = Map.groupBy(stalls.flatMap((stall) => stall.stacks), (place) => place);
      const most = [...equal].sort(([, a], [, b]) => b.length - a.length);
      const [{ label, job }] = stalls;
      return most.slice(0, STACKS).map(([place, { length }]) => {
        const lines = stacks[place] ?? [];
        const line = lines.find((name) => !OF_LIBRARIES.test(name)) ?? lines[0] ?? 'unknown';
        return { title: `${exact(length)} × ${line} – ${label ?? job ?? 'unknown'}`, text: lines.join('\n') };
      });
    });
    while (this.element.children.length > rows.length) this.element.lastElementChild.remove();
    rows.forEach(({ title, text }, i) => {
      const row = this.element.children[i] ?? this.append();
      const [summary, body] = row.children;
      if (summary.textContent !== title) summary.textContent = title;
      if (body.textContent === text) return;
      // Another stack has come to this place.
      row.open = false;
      body.textContent = text;
    });
  }

  append() {
    const row = document.createElement('details');
    row.append(document.createElement('summary'), document.createElement('pre'));
    this.element.append(row);
    return row;
  }
}
