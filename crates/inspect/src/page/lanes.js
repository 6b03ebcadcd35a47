// The activity of each worker: stacked shares of the samples, with a pattern and a colour.

import {
  begin, color, columnAt, columnWidth, crowd, describe, drawAxis, ground, GUTTER, sideLabel, unwatch, watch,
} from './canvas.js';
import { clock, percent } from './format.js';
import { ACTIVITIES } from './frame.js';

const TILE = 6;

/**
 * The possible scales of a lane: a small one makes the activity of a mostly parked worker visible.
 */
const SCALES = [0.04, 0.1, 0.2, 0.5, 1];

/** Draws the pattern of an activity on a tile. */
const MARKS = {
  running: () => {},
  firing: (c) => { c.moveTo(-1, 7); c.lineTo(7, -1); c.moveTo(-4, 4); c.lineTo(4, -4); c.moveTo(2, 10); c.lineTo(10, 2); },
  polling: (c) => { c.rect(2, 2, 1, 1); },
  stealing: (c) => { c.moveTo(0, 3); c.lineTo(6, 3); c.moveTo(3, 0); c.lineTo(3, 6); },
  parked: () => {},
};

const fills = new Map();

/** Returns the fill of an activity: its colour, and a pattern that identifies it without colour. */
function fill(context, activity) {
  const ratio = devicePixelRatio || 1;
  const key = `${activity} ${color(activity)} ${color('mark')} ${ratio}`;
  if (!fills.has(key)) fills.set(key, makeFill(context, activity, ratio));
  return fills.get(key);
}

function makeFill(context, activity, ratio) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = Math.round(TILE * ratio);
  const paint = tile.getContext('2d');
  paint.scale(tile.width / TILE, tile.width / TILE);
  paint.fillStyle = color(activity);
  paint.fillRect(0, 0, TILE, TILE);
  paint.beginPath();
  paint.strokeStyle = color('mark');
  MARKS[activity](paint);
  paint.stroke();
  const pattern = context.createPattern(tile, 'repeat');
  pattern.setTransform(new DOMMatrix().scale(TILE / tile.width));
  return pattern;
}

export class Lanes {
  constructor({ rows, axis, legend, hint, tip }) {
    Object.assign(this, { rows, axis: watch(axis), hint, tip });
    this.lanes = [];
    this.keys = ACTIVITIES.map((activity) => {
      const key = document.createElement('span');
      key.className = 'key';
      const canvas = watch(document.createElement('canvas'));
      canvas.className = 'swatch';
      canvas.setAttribute('aria-hidden', 'true');
      key.append(canvas, activity);
      legend.append(key);
      return { activity, canvas };
    });
  }

  arrange(names) {
    if (names.length === this.lanes.length) return;
    this.lanes.forEach(({ canvas }) => unwatch(canvas));
    this.lanes = names.map((name, worker) => this.lane(name, worker));
    this.rows.replaceChildren(...this.lanes.map(({ row }) => row));
    this.rows.dataset.many = crowd(names.length);
  }

  lane(name, worker) {
    const row = document.createElement('div');
    row.className = 'row lane';
    const head = document.createElement('div');
    head.className = 'head';
    const title = document.createElement('strong');
    title.textContent = name;
    const figures = document.createElement('span');
    head.append(title, figures);
    const canvas = watch(document.createElement('canvas'));
    canvas.setAttribute('role', 'img');
    canvas.tabIndex = 0;
    row.append(head, canvas);
    this.tip.attach(canvas, (x) => this.pick(name, worker, canvas, x), (dx) => [dx * columnWidth(canvas, this.columns), 0]);
    return { name, row, canvas, figures };
  }

  draw({ columns, unixOffset }) {
    Object.assign(this, { columns, unixOffset });
    for (const { activity, canvas } of this.keys) {
      const drawing = begin(canvas);
      if (!drawing) continue;
      drawing.context.fillStyle = fill(drawing.context, activity);
      drawing.context.fillRect(0, 0, drawing.width, drawing.height);
    }
    this.top = this.scale();
    // The scale follows the load, so it is said and not only drawn.
    const hint = `shares of samples; the full height is ${percent(this.top)} of the time`;
    if (this.hint.textContent !== hint) this.hint.textContent = hint;
    this.lanes.forEach((lane, worker) => {
      this.drawLane(lane, worker);
      this.tell(lane, worker);
    });
    drawAxis(this.axis, columns, unixOffset);
  }

  /** Returns the smallest scale that fits everything except the parked time. */
  scale() {
    const { columns } = this;
    let most = 0;
    for (let column = Math.max(columns.first, 0); column <= columns.last; column++) {
      this.lanes.forEach((_, worker) => {
        const found = this.samples(worker, column);
        if (found) most = Math.max(most, 1 - found.samples.at(-1) / found.total);
      });
    }
    return SCALES.find((scale) => most <= scale) ?? 1;
  }

  /** Returns the samples of a worker in a column, or null if there are none. */
  samples(worker, column) {
    const { columns } = this;
    if (!columns.known(column)) return null;
    const at = (columns.slot(column) * columns.workers + worker) * ACTIVITIES.length;
    const samples = columns.samples.subarray(at, at + ACTIVITIES.length);
    const total = samples.reduce((a, b) => a + b, 0);
    return total > 0 ? { samples, total } : null;
  }

  drawLane(lane, worker) {
    const drawing = begin(lane.canvas, GUTTER);
    if (!drawing) return;
    const { context, width, height } = drawing;
    ground(context, width, height);
    const { columns } = this;
    const step = width / columns.count;
    const paths = ACTIVITIES.map(() => new Path2D());
    for (let i = 0; i < columns.count; i++) {
      const found = this.samples(worker, columns.first + i);
      if (!found) continue;
      let y = height;
      // Use whole pixels, so that no seam shows between columns.
      const [from, to] = [Math.round(i * step), Math.round((i + 1) * step)];
      found.samples.forEach((count, activity) => {
        const size = Math.min((count / found.total / this.top) * height, y);
        y -= size;
        if (size > 0) paths[activity].rect(from, y, to - from, size);
      });
    }
    paths.forEach((path, activity) => {
      context.fillStyle = fill(context, ACTIVITIES[activity]);
      context.fill(path);
    });
    context.fillStyle = color('grid-over');
    context.fillRect(0, Math.round(height / 2), width, 1);
    sideLabel(context, percent(this.top), 7);
    if (height > 30) sideLabel(context, percent(this.top / 2), height / 2);
  }

  /** Describes the shares over the whole range in words. */
  tell(lane, worker) {
    const sums = new Float64Array(ACTIVITIES.length);
    for (let column = Math.max(this.columns.first, 0); column <= this.columns.last; column++) {
      this.samples(worker, column)?.samples.forEach((count, i) => { sums[i] += count; });
    }
    const total = sums.reduce((a, b) => a + b, 0);
    const shares = ACTIVITIES.map((name, i) => ({ name, share: total > 0 ? sums[i] / total : 0 }));
    const busy = total > 0 ? `${percent(1 - shares.at(-1).share)} awake` : 'no samples';
    if (lane.figures.textContent !== busy) lane.figures.textContent = busy;
    describe(lane.canvas, `${lane.name}: ${shares.map(({ name, share }) => `${name} ${percent(share)}`).join(', ')}`);
  }

  pick(name, worker, canvas, x) {
    if (!this.columns) return null;
    const { columns } = this;
    const column = columns.first + columnAt(canvas, columns, x);
    const found = this.samples(worker, column);
    const lines = [`${name}, ${clock(columns.start(column) + this.unixOffset, true)}`];
    if (!found) return [...lines, 'nothing is known of this time'];
    return [...lines, ...ACTIVITIES.map((activity, i) => `${activity} ${percent(found.samples[i] / found.total)}`).reverse()];
  }
}
