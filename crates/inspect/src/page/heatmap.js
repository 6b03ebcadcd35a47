// The heat map of lateness: a strip per worker, time to the right, lateness upwards in log scale.

import { BUCKETS, OCTAVE } from './buckets.js';
import {
  begin, color, columnAt, columnWidth, crowd, describe, drawAxis, ground, GUTTER, label, marks, sideLabel, unwatch, watch,
} from './canvas.js';
import { clock, duration, exact, short } from './format.js';
import { Palette } from './palette.js';

/** The marks of the lateness axis, in nanoseconds. */
const DECADES = [100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11];

/** Where to look for timers near a point, in columns and buckets: the nearest cell first. */
const NEAR = [-2, -1, 0, 1, 2].flatMap((dy) => [-1, 0, 1].map((dx) => [dx, dy]))
  .sort((a, b) => Math.hypot(2 * a[0], a[1]) - Math.hypot(2 * b[0], b[1]));

/** The minimum range that is shown, in buckets. */
const LEAST_SPAN = 6 * OCTAVE;

/**
 * A strip: a picture with one pixel per cell, painted by column, and the canvas that shows it
 * stretched.
 */
class Strip {
  constructor(name, tip) {
    this.name = name;
    this.row = document.createElement('div');
    this.row.className = 'row';
    const head = document.createElement('div');
    head.className = 'head';
    this.title = document.createElement('strong');
    this.title.textContent = name;
    this.figures = document.createElement('span');
    head.append(this.title, this.figures);
    this.canvas = watch(document.createElement('canvas'));
    this.canvas.setAttribute('role', 'img');
    this.canvas.tabIndex = 0;
    this.row.append(head, this.canvas);
    this.picture = document.createElement('canvas');
    this.pixels = this.picture.getContext('2d');
    this.column = new ImageData(1, BUCKETS);
    tip.attach(
      this.canvas,
      (x, y) => this.pick?.(x, y),
      (dx, dy) => this.step?.(dx, dy),
      (x, y) => this.choose?.(x, y),
    );
  }

  /** Paints the columns from `from` on. */
  paint(columns, entity, palette, from) {
    if (this.picture.width !== columns.count) {
      this.picture.width = columns.count;
      this.picture.height = BUCKETS;
    }
    const { data } = this.column;
    for (let column = Math.max(from, columns.first); column <= columns.last; column++) {
      const slot = columns.slot(column);
      const at = columns.cell(entity, slot);
      for (let bucket = 0; bucket < BUCKETS; bucket++) {
        const pixel = (BUCKETS - 1 - bucket) * 4;
        const count = columns.lateness[at + bucket];
        if (count > 0) {
          const [red, green, blue] = palette.color(count);
          data[pixel] = red;
          data[pixel + 1] = green;
          data[pixel + 2] = blue;
        }
        data[pixel + 3] = count > 0 ? 255 : 0;
      }
      this.pixels.putImageData(this.column, slot, 0);
    }
  }
}

export class HeatMap {
  /** `choose` is called with the cell that the user chooses. */
  constructor({ rows, axis, scale, tip, choose }) {
    Object.assign(this, { rows, axis: watch(axis), scale: watch(scale), tip, chosen: null, onChoose: choose });
    this.strips = [];
    this.palette = null;
    this.columns = null;
  }

  /** Creates a strip for each of `names`. */
  arrange(names) {
    if (names.length === this.strips.length) return;
    this.strips.forEach(({ canvas }) => unwatch(canvas));
    this.strips = names.map((name) => new Strip(name, this.tip));
    this.rows.replaceChildren(...this.strips.map(({ row }) => row));
    this.rows.dataset.many = crowd(names.length);
    this.columns = null;
  }

  /** Draws everything. `showHelpers` tells whether the helpers have a strip. */
  draw({ columns, sums, bounds, stage, unixOffset }, showHelpers) {
    const most = 4 ** Math.ceil(Math.log(Math.max(columns.peak(), 16)) / Math.log(4));
    let from = columns.dirty;
    if (this.palette?.most !== most) {
      this.palette = new Palette(most);
      from = columns.first;
    }
    if (this.columns !== columns) {
      from = columns.first;
      this.chosen = null;
    }
    this.columns = columns;
    this.bounds = bounds;
    this.unixOffset = unixOffset;
    this.span = this.spanOf(columns);
    this.strips.forEach((strip, entity) => {
      strip.row.hidden = entity === this.strips.length - 1 && !showHelpers;
      strip.paint(columns, entity, this.palette, from);
      this.drawStrip(strip, entity);
      this.tell(strip, entity, sums, stage);
    });
    drawAxis(this.axis, columns, unixOffset);
    this.drawScale(columns);
  }

  /** Returns the range of buckets to show: whole octaves, with a spare one on each side. */
  spanOf(columns) {
    const { low, high } = columns.span() ?? { low: 2 * OCTAVE, high: 12 * OCTAVE };
    let from = (Math.floor(low / OCTAVE) - 1) * OCTAVE;
    let to = (Math.floor(high / OCTAVE) + 2) * OCTAVE;
    const missing = Math.ceil(Math.max(LEAST_SPAN - (to - from), 0) / 2);
    from = Math.max(from - missing, 0);
    to = Math.min(to + missing, BUCKETS);
    return { from, to, size: to - from };
  }

  y(position, height) {
    return height * (1 - (position - this.span.from) / this.span.size);
  }

  drawStrip(strip, entity) {
    strip.pick = (x, y) => this.pick(strip, entity, x, y);
    strip.step = (dx, dy) => this.step(strip, dx, dy);
    strip.choose = (x, y) => this.choose(strip, entity, x, y);
    const drawing = begin(strip.canvas, GUTTER);
    if (!drawing) return;
    const { context, width, height } = drawing;
    const { columns, span } = this;
    ground(context, width, height, 'heat');
    context.fillStyle = color('heat-grid');
    for (const [x] of marks(columns, this.unixOffset, width)) context.fillRect(Math.round(x), 0, 1, height);
    // The ring has two parts: from the oldest column to the end, and from the start to the newest.
    context.imageSmoothingEnabled = false;
    const begins = columns.slot(columns.last + 1);
    const top = BUCKETS - span.to;
    const cut = ((columns.count - begins) / columns.count) * width;
    context.drawImage(strip.picture, begins, top, columns.count - begins, span.size, 0, 0, cut, height);
    if (begins > 0) {
      context.drawImage(strip.picture, 0, top, begins, span.size, cut, 0, width - cut, height);
    }
    const decades = this.decades(height);
    context.fillStyle = color('heat-over');
    for (const { y } of decades) context.fillRect(0, Math.round(y), width, 1);
    this.drawQuantile(context, width, height, columns.median, entity, []);
    this.drawQuantile(context, width, height, columns.high, entity, [4, 3]);
    for (const { y, ns } of decades) sideLabel(context, duration(ns), y);
    if (this.chosen?.entity === entity) this.drawChosen(context, width, height);
  }

  /** Draws a frame around the chosen cell. */
  drawChosen(context, width, height) {
    const { columns, span, chosen } = this;
    const [step, size] = [width / columns.count, height / span.size];
    const x = (chosen.column - columns.first) * step;
    const y = this.y(chosen.bucket + 1, height);
    if (x < 0) return;
    for (const [name, line, out] of [['heat-halo', 4, 2], ['heat-chosen', 1.5, 2]]) {
      context.strokeStyle = color(name);
      context.lineWidth = line;
      context.strokeRect(x - out, y - out, step + 2 * out, size + 2 * out);
    }
  }

  /** Returns the marks of the lateness axis that have room for their text. */
  decades(height) {
    let free = Infinity;
    return DECADES.map((ns) => ({ ns, y: this.y(this.bounds.position(ns), height) })).filter(({ y }) => {
      const fits = y > 6 && y < height - 5 && free - y > 13;
      if (fits) free = y;
      return fits;
    });
  }

  /** Draws a quantile as a line, at the upper bound of its bucket in each column. */
  drawQuantile(context, width, height, buckets, entity, dashes) {
    const { columns } = this;
    const path = new Path2D();
    const step = width / columns.count;
    let open = false;
    for (let i = 0; i < columns.count; i++) {
      const bucket = buckets[columns.slot(columns.first + i) * columns.entities + entity];
      const known = bucket >= 0 && columns.known(columns.first + i);
      if (known) {
        const y = this.y(bucket + 1, height);
        if (open) path.lineTo(i * step, y);
        else path.moveTo(i * step, y);
        path.lineTo((i + 1) * step, y);
      }
      open = known;
    }
    context.lineJoin = 'round';
    context.setLineDash([]);
    context.strokeStyle = color('heat-halo');
    context.lineWidth = 3.5;
    context.stroke(path);
    context.setLineDash(dashes);
    context.strokeStyle = color('heat-line');
    context.lineWidth = 1.5;
    context.stroke(path);
    context.setLineDash([]);
  }

  /** Describes the strip in words. */
  tell(strip, entity, sums, stage) {
    const [p50, p99] = [0.5, 0.99].map((q) => this.bounds.say(sums.quantile(q, entity)));
    const timers = Math.round(sums.timers(entity));
    const text = timers > 0 ? `p50 ${p50}\np99 ${p99}\n${short(timers)} timers` : 'no timers';
    if (strip.figures.textContent !== text) strip.figures.textContent = text;
    describe(strip.canvas, `${strip.name}, ${stage}-late over time: ${text.replaceAll('\n', ', ')}`);
  }

  /** Returns the column and the bucket at a point of a strip. */
  locate(strip, x, y) {
    const { columns, span } = this;
    const column = columns.first + columnAt(strip.canvas, columns, x);
    const bucket = Math.ceil(span.to - (y / strip.canvas.clientHeight) * span.size) - 1;
    return { column, bucket: Math.min(Math.max(bucket, span.from), span.to - 1) };
  }

  count(entity, { column, bucket }) {
    return this.columns.lateness[this.columns.cell(entity, this.columns.slot(column)) + bucket];
  }

  /** Describes a column, and the lateness of a bucket. */
  words(strip, { column, bucket }) {
    const { columns, bounds } = this;
    const begins = columns.start(column) + this.unixOffset;
    const to = bounds.to(bucket);
    return {
      place: `${strip.name}, ${clock(begins, true)} – ${clock(begins + columns.width, true)}`,
      lateness: to === Infinity ? `${duration(bounds.from(bucket))} and more` : `${duration(bounds.from(bucket))} – ${duration(to)}`,
    };
  }

  /** Returns the text for a point of a strip. */
  pick(strip, entity, x, y) {
    const { columns } = this;
    const at = this.locate(strip, x, y);
    const { place, lateness } = this.words(strip, at);
    if (!columns.known(at.column)) return [place, 'nothing is known of this time'];
    const slot = columns.slot(at.column);
    const count = this.count(entity, at);
    const [median, high] = [columns.median, columns.high].map((of) => this.bounds.say(of[slot * columns.entities + entity]));
    const lines = [place, `${lateness} late: ${count > 0 && count < 9.5 ? short(count) : exact(count)}`, `p50 ${median}, p99 ${high}`];
    return count > 0 ? [...lines, 'click, or Enter: its slowest timers'] : lines;
  }

  /** Chooses the cell at a point of a strip, or the nearest one that has timers. */
  choose(strip, entity, x, y) {
    const { columns, span } = this;
    const at = this.locate(strip, x, y);
    const [near] = NEAR.map(([dx, dy]) => ({ column: at.column + dx, bucket: at.bucket + dy }))
      .filter((cell) => columns.known(cell.column) && cell.bucket >= span.from && cell.bucket < span.to)
      .filter((cell) => this.count(entity, cell) > 0);
    const cell = near ?? at;
    if (!columns.known(cell.column)) return;
    this.chosen = { ...cell, entity };
    const slot = columns.slot(cell.column);
    this.onChoose({
      ...this.words(strip, cell),
      bucket: cell.bucket,
      to: this.bounds.to(cell.bucket),
      worker: entity < columns.workers ? String(entity) : 'helpers',
      count: Math.max(Math.round(this.count(entity, cell)), 0),
      begins: columns.begins[slot],
      ends: columns.ends[slot],
    });
  }

  /** Forgets the chosen cell. */
  forget() {
    this.chosen = null;
  }

  /** Returns the distance of an arrow key: a column, or a bucket. */
  step(strip, dx, dy) {
    return [dx * columnWidth(strip.canvas, this.columns), (dy * strip.canvas.clientHeight) / this.span.size];
  }

  /** Draws the legend of colours. */
  drawScale(columns) {
    const per = columns.width >= 1000 ? `${columns.width / 1000} s` : `${columns.width} ms`;
    describe(this.scale, `Colours: from 1 to ${exact(this.palette.most)} timers in ${per}, on a log scale`);
    const drawing = begin(this.scale);
    if (!drawing) return;
    const { context, width } = drawing;
    const [bar, left] = [width - 108, 4];
    for (let x = 0; x < bar; x++) {
      const [red, green, blue] = this.palette.colors[Math.round((x / (bar - 1)) * 255)];
      context.fillStyle = `rgb(${red} ${green} ${blue})`;
      context.fillRect(left + x, 2, 1, 9);
    }
    context.textBaseline = 'top';
    context.textAlign = 'center';
    for (let count = 1, free = -Infinity; count <= this.palette.most; count *= 4) {
      const x = left + this.palette.position(count) * (bar - 1);
      if (x - free < 26 || (count < this.palette.most && left + bar - x < 26)) continue;
      free = x;
      context.fillStyle = color('muted');
      context.fillRect(Math.round(x), 9, 1, 4);
      label(context, short(count), Math.max(x, 6), 14);
    }
    context.textAlign = 'left';
    label(context, `timers in ${per}`, left + bar + 10, 2);
  }
}
