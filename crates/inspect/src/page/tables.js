// The tables: workers, stalls, counters, threads. Data of the runtime is inserted as text, never as
// HTML.

import { clock, duration, exact, percent, short } from './format.js';
import { Rows } from './rows.js';
import { Stacks } from './stacks.js';

const COUNTER_TABLES = 3;

/** The most rows of the table of stalls. */
const STALL_ROWS = 10;

/** Returns a name behind a job's label and with its group, if it has them. */
function described(name, { label, group }) {
  const labelled = label ? `${label} in ${name}` : name;
  return group ? `${labelled} of group ${group}` : labelled;
}

/** Returns the name of a job: its type, its group, and its spawn location if known. */
function jobName(job) {
  if (!job) return '';
  const name = described(job.name, job);
  return job.spawned ? `${name} (${job.spawned})` : name;
}

/** Returns what a group of tasks takes: its part of the workers' time since the snapshot before. */
function groupText(group, earlier, seconds) {
  const busy = earlier && seconds > 0 ? percent(Math.max(group.busy_ms - earlier.busy_ms, 0) / seconds / 1000) : '–';
  return `${group.name} ${busy} of a core, ${exact(group.shares)} shares, ${exact(group.queued)} queued`;
}

/** All counters, in several tables side by side. */
class Counters {
  constructor(element) {
    this.element = element;
    this.names = '';
  }

  arrange(counters) {
    if (this.names === counters.join()) return;
    this.names = counters.join();
    const size = Math.ceil(counters.length / COUNTER_TABLES);
    this.parts = Array.from({ length: COUNTER_TABLES }, (_, i) => {
      const table = document.createElement('table');
      table.className = 'list';
      const head = table.createTHead().insertRow();
      ['counter', 'per second', 'total'].forEach((text, column) => {
        const cell = document.createElement('th');
        Object.assign(cell, { scope: 'col', textContent: text, className: column > 0 ? 'num' : '' });
        head.append(cell);
      });
      return { table, rows: new Rows(table.createTBody(), ['', 'num', 'num']), first: i * size, end: (i + 1) * size };
    });
    this.element.replaceChildren(...this.parts.map(({ table }) => table));
  }

  draw(counters, sums, totals) {
    this.arrange(counters);
    const all = counters.map((name, i) => {
      const rate = sums.perSecond(sums.counts[i]);
      const [form, total] = name.endsWith('_ns') ? [duration, duration] : [short, exact];
      return [name.replace(/_ns$/, ' time').replaceAll('_', ' '), form(rate), total(totals[name])];
    });
    for (const { rows, first, end } of this.parts) {
      rows.show(all.slice(first, end), (row, i) => { row.dataset.counter = counters[first + i]; });
    }
  }
}

export class Tables {
  constructor(find) {
    const rows = (id, classes) => new Rows(find(id), classes);
    this.workers = rows('worker-rows', ['', 'activity', 'job', '', 'num', 'num', 'num', 'num', 'num', 'num', 'num', 'num']);
    this.stalls = rows('stall-rows', ['num', 'num', '', '', 'num', 'num', 'job', 'place', '']);
    this.counters = new Counters(find('counters'));
    this.threads = rows('thread-rows', ['', 'num', 'num', 'num']);
    this.clocks = rows('clock-rows', ['', 'num', 'num']);
    this.stacks = new Stacks(find('stall-stacks'));
    this.noStalls = find('no-stalls');
    this.moreStalls = find('more-stalls');
    this.kept = find('kept');
    this.hint = find('workers-hint');
    this.groups = find('groups');
  }

  /** `before` is a snapshot from about two seconds ago, for the rates of each worker, or null. */
  draw({ snapshot, before, counters, sums, totals, unixOffset }) {
    this.drawWorkers(snapshot, before);
    this.drawStalls(snapshot, unixOffset);
    this.drawKept(snapshot);
    this.counters.draw(counters, sums, totals);
    const { helpers, blocking, clocks } = snapshot;
    this.threads.show([
      ['helpers', exact(helpers.threads), exact(helpers.idle), `${exact(helpers.started)} started`],
      ['blocking', exact(blocking.threads), exact(blocking.idle), `${exact(blocking.queued)} queued`],
    ]);
    this.clocks.show(['wall', 'boot'].map((name) => [name, exact(clocks[name].pending), exact(clocks[name].garbage)]));
  }

  drawWorkers(snapshot, before) {
    this.hint.textContent = `global queue ${exact(snapshot.global_queue_depth)}, tasks alive ${exact(snapshot.alive_tasks)}`;
    const since = before ? (snapshot.at_ms - before.at_ms) / 1000 : 0;
    const groups = snapshot.groups.map((group, i) => groupText(group, before?.groups[i], since));
    this.groups.textContent = groups.length > 0 ? `Groups: ${groups.join('; ')}` : '';
    this.workers.show(snapshot.workers.map((worker, i) => {
      const earlier = before?.workers[i];
      const seconds = earlier ? (snapshot.at_ms - before.at_ms) / 1000 : 0;
      const rate = (name) => (seconds > 0 ? (worker.counts[name] - earlier.counts[name]) / seconds : NaN);
      const text = (value, form) => (Number.isNaN(value) ? '–' : form(Math.max(value, 0)));
      return [
        String(worker.id), worker.activity, jobName(worker.job), worker.cpu === null ? 'any' : String(worker.cpu),
        text(rate('busy_ns'), (ns) => percent(Math.min(ns / 1e9, 1))),
        exact(worker.queue_depth), exact(worker.pinned_tasks), exact(worker.pending), exact(worker.stored),
        exact(worker.garbage), text(rate('fired'), short), text(rate('polls'), short),
      ];
    }), (row, i) => {
      row.dataset.activity = snapshot.workers[i].activity;
    });
  }

  /** Shows links to the traces that were kept, the newest first. */
  drawKept({ kept_unix_ms: times }) {
    if (this.kept.dataset.times === times.join()) return;
    this.kept.dataset.times = times.join();
    this.kept.hidden = times.length === 0;
    this.kept.querySelector('span').replaceChildren(...times.toReversed().map((at) => {
      const link = document.createElement('a');
      Object.assign(link, { href: `trace.json?kept=${at}`, download: '', textContent: clock(at) });
      return link;
    }));
  }

  drawStalls(snapshot, unixOffset) {
    // One row for each job, with its newest stall and its longest.
    const jobs = Map.groupBy(
      [...snapshot.stalls].sort((a, b) => b.number - a.number),
      ({ label, job, group, spawned }) => `${label} ${job} ${group} ${spawned}`,
    );
    const groups = [...jobs.values()];
    this.noStalls.hidden = groups.length > 0;
    this.moreStalls.textContent = groups.length > STALL_ROWS ? `And ${exact(groups.length - STALL_ROWS)} other jobs.` : '';
    this.stalls.body.parentElement.hidden = groups.length === 0;
    this.stalls.show(groups.slice(0, STALL_ROWS).map((stalls) => {
      const [stall] = stalls;
      const longest = stalls.reduce((most, { elapsed_ms: ms }) => Math.max(most, ms), 0);
      return [
        exact(stall.number), exact(stalls.length), clock(stall.at_ms + unixOffset, true),
        stall.worker === null ? 'helper' : String(stall.worker), duration(stall.elapsed_ms * 1e6), duration(longest * 1e6),
        stall.job === null ? `one of ${exact(stall.jobs)} jobs, which were not timed` : described(stall.job, stall), stall.spawned ?? '',
        stall.is_running ? 'still runs' : 'over',
      ];
    }));
    this.stacks.show(groups.slice(0, STALL_ROWS), snapshot.stacks);
  }
}
