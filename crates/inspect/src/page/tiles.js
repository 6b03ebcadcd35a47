// The figures at the top of the page.

import { duration, exact, short, uptime } from './format.js';
import { gauge } from './frame.js';

/** From these latenesses on, in ns, a tile is marked: a server notices the first, its clients the second. */
const LEVELS = [['alarm', 10e6], ['warn', 1e6]];

const STAGES = {
  wake: 'from the deadline until a worker takes the timer from its store',
  queue: 'from when it was taken until its callback or task runs; one timer in some sixteen is measured',
  rescued: 'wake-late of the timers that others took, because their own worker was stuck',
};

export class Tiles {
  constructor(find) {
    this.find = find;
    this.names = document.querySelectorAll('[data-stage-name]');
  }

  set(id, text) {
    const element = this.find(id);
    if (element.textContent !== text) element.textContent = text;
  }

  draw(view) {
    const { snapshot, sums, counters, totals } = view;
    this.set('version', snapshot.tourbillon);
    this.set('pid', String(snapshot.pid));
    this.set('uptime', uptime(snapshot.uptime_ms));
    this.set('workers', exact(snapshot.workers.length));
    this.set('clients', exact(snapshot.clients));
    const rate = (...names) => names.reduce((sum, name) => {
      const at = counters.indexOf(name);
      return at < 0 ? sum : sum + sums.perSecond(sums.counts[at]);
    }, 0);
    this.set('tile-pending', short(gauge(snapshot, 'pending')));
    this.set('tile-pending-more', `${short(gauge(snapshot, 'garbage'))} garbage`);
    this.set('tile-fired', short(rate('fired')));
    this.set('tile-fired-more', `${exact(totals.fired)} in total`);
    this.set('tile-armed', short(rate('armed_local', 'armed_remote')));
    this.set('tile-armed-more', `${short(rate('armed_remote'))} remote`);
    this.drawLateness(view);
    this.set('tile-tasks', short(snapshot.alive_tasks));
    this.set('tile-tasks-more', `${short(rate('polls'))} polls per second`);
    this.set('tile-stalls', exact(totals.stalls));
    const newest = snapshot.stalls.reduce((a, b) => (a && a.number > b.number ? a : b), null);
    this.set('tile-stalls-more', newest ? `${duration(newest.elapsed_ms * 1e6)}, worker ${newest.worker ?? 'helper'}` : 'none reported');
    this.find('tile-stalls-link').classList.toggle('alarm', totals.stalls > 0);
  }

  drawLateness({ sums, stage, bounds }) {
    this.set('stage-hint', STAGES[stage]);
    this.names.forEach((element) => { element.textContent = stage; });
    for (const [id, q] of [['tile-p50', 0.5], ['tile-p99', 0.99], ['tile-p999', 0.999]]) {
      const bucket = sums.quantile(q);
      this.set(id, bounds.say(bucket));
      const level = bucket < 0 ? '' : LEVELS.find(([, from]) => bounds.from(bucket) >= from)?.[0] ?? '';
      this.find(id).parentElement.dataset.level = level;
      this.set(`${id}-more`, id === 'tile-p50' ? `of ${short(Math.round(sums.timers()))} timers` : '');
    }
    this.set('tile-p99-more', this.worst(sums));
    const last = sums.quantile(1);
    this.set('tile-p999-more', last < 0 ? '' : `at most ${bounds.say(last)}`);
  }

  /** Returns the worker with the highest p99. */
  worst(sums) {
    let worst = -1;
    let most = -1;
    for (let entity = 0; entity < sums.entities; entity++) {
      const bucket = sums.quantile(0.99, entity);
      if (bucket > most) [worst, most] = [entity, bucket];
    }
    if (worst < 0) return '';
    return `worst: ${worst < sums.workers ? `worker ${worst}` : 'helpers'}`;
  }
}
