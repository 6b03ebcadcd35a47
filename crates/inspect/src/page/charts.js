// Line charts over time. Lines differ by dashes and colour, and a table shows their figures.

import {
  begin, color, columnAt, columnWidth, describe, ground, GUTTER, label, marks, sideLabel, watch,
} from './canvas.js';
import { clock, short } from './format.js';
import { GAUGES } from './frame.js';

const DASHES = [[], [6, 3], [2, 2], [9, 3, 2, 3], [1, 4]];

/** The charts: rates of counters, or gauges. */
const CHARTS = [
  {
    title: 'Timers per second',
    series: [
      { name: 'armed local', counter: 'armed_local' },
      { name: 'armed remote', counter: 'armed_remote' },
      { name: 'fired', counter: 'fired' },
      { name: 'cancelled', counter: 'cancelled' },
      { name: 'refreshed', counter: 'refreshed' },
    ],
  },
  {
    title: 'Timers in the stores',
    hint: 'Garbage is the entry of a cancelled timer that has not been removed yet.',
    series: [{ name: 'pending', gauge: 'pending' }, { name: 'garbage', gauge: 'garbage' }],
  },
  {
    title: 'Tickles per second',
    hint: 'A tickle is a write to an eventfd, which wakes a worker that sleeps. It is skipped if the worker is awake.',
    series: [{ name: 'written', counter: 'tickles_written' }, { name: 'skipped', counter: 'tickles_skipped' }],
  },
  {
    title: 'Waits per second',
    hint: 'An epoll wait asks for ready sockets, often without sleeping. A park is a sleep. A deferred wake-up is a sleep past a deadline.',
    series: [
      { name: 'epoll waits', counter: 'epoll_waits' },
      { name: 'parks', counter: 'parks' },
      { name: 'deferred wake-ups', counter: 'deferred_wakes' },
      { name: 'naps for the CPU quota', counter: 'quota_naps' },
    ],
  },
];

/** The height of the time axis, in pixels. */
const AXIS = 14;

const SVG = 'http://www.w3.org/2000/svg';

function swatch(index) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 26 8');
  svg.setAttribute('aria-hidden', 'true');
  svg.classList.add('swatch-line');
  const line = document.createElementNS(SVG, 'path');
  line.setAttribute('d', 'M1 4h24');
  line.setAttribute('stroke-dasharray', DASHES[index].join(' '));
  line.classList.add(`series-${index + 1}`);
  svg.append(line);
  return svg;
}

function cell(tag, text, className = '') {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = className;
  return element;
}

/** Returns the smallest of 1, 2, 5, 10, 20 … that is at least `value`. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
}

class Chart {
  constructor({ title, hint = '', series }, tip) {
    this.title = title;
    this.section = document.createElement('section');
    this.section.className = 'card chart';
    const table = document.createElement('table');
    const caption = document.createElement('caption');
    const heading = cell('h2', title);
    heading.title = hint;
    caption.append(heading);
    const head = document.createElement('thead');
    const heads = document.createElement('tr');
    heads.append(cell('td', ''), ...['now', 'mean', 'max'].map((text) => cell('th', text, 'num')));
    head.append(heads);
    const body = document.createElement('tbody');
    this.series = series.map((one, index) => {
      const row = document.createElement('tr');
      const name = cell('th', '');
      name.scope = 'row';
      name.append(swatch(index), one.name);
      const figures = ['now', 'mean', 'max'].map(() => cell('td', '–', 'num'));
      row.append(name, ...figures);
      body.append(row);
      return { ...one, figures };
    });
    table.append(caption, head, body);
    this.canvas = watch(document.createElement('canvas'));
    this.canvas.setAttribute('role', 'img');
    this.canvas.tabIndex = 0;
    this.section.append(table, this.canvas);
    tip.attach(this.canvas, (x) => this.pick(x), (dx) => [dx * columnWidth(this.canvas, this.columns), 0]);
  }

  value(one, column) {
    return one.gauge
      ? this.columns.gauge(GAUGES.indexOf(one.gauge), column)
      : this.columns.rate(this.counters.indexOf(one.counter), column);
  }

  draw({ columns, counters, unixOffset }) {
    Object.assign(this, { columns, counters, unixOffset });
    const lines = this.series.map((one) =>
      Array.from({ length: columns.count }, (_, i) => this.value(one, columns.first + i)));
    const words = this.series.map((one, i) => this.tell(one, lines[i].filter((value) => !Number.isNaN(value))));
    describe(this.canvas, `${this.title}: ${words.join('; ')}`);
    const drawing = begin(this.canvas, GUTTER);
    if (!drawing) return;
    const { context, width, height } = drawing;
    const top = roundUp(lines.flat().reduce((a, b) => (b > a ? b : a), 0));
    const floor = height - AXIS;
    const y = (value) => floor - (value / top) * (floor - 14);
    ground(context, width, floor);
    context.fillStyle = color('grid');
    const times = marks(columns, unixOffset, width, 64);
    for (const [x] of times) context.fillRect(Math.round(x), 0, 1, floor);
    for (const share of [0, 0.5, 1]) context.fillRect(0, Math.round(y(top * share)), width, 1);
    lines.forEach((line, index) => this.drawLine(context, line, index, width / columns.count, y));
    context.textBaseline = 'bottom';
    context.textAlign = 'center';
    for (const [x, at] of times) {
      if (x > 24 && x < width - 24) label(context, clock(at), x, height);
    }
    for (const share of [0, 0.5, 1]) sideLabel(context, short(top * share), y(top * share));
  }

  drawLine(context, line, index, step, y) {
    const path = new Path2D();
    let open = false;
    line.forEach((value, i) => {
      const known = !Number.isNaN(value);
      if (known) path[open ? 'lineTo' : 'moveTo']((i + 0.5) * step, y(value));
      open = known;
    });
    context.lineJoin = 'round';
    context.lineWidth = 1.6;
    context.strokeStyle = color(`series-${index + 1}`);
    context.setLineDash(DASHES[index]);
    context.stroke(path);
    context.setLineDash([]);
  }

  /** Writes the figures of a line into the table, and returns them as text. */
  tell({ name, figures }, values) {
    if (values.length === 0) return `${name} unknown`;
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const most = values.reduce((a, b) => Math.max(a, b), 0);
    const texts = [values.at(-1), mean, most].map(short);
    texts.forEach((text, i) => {
      if (figures[i].textContent !== text) figures[i].textContent = text;
    });
    return `${name} ${texts[0]} now, ${texts[1]} on average, ${texts[2]} at most`;
  }

  pick(x) {
    if (!this.columns) return null;
    const { columns, canvas } = this;
    const column = columns.first + columnAt(canvas, columns, x);
    const time = `${this.title}, ${clock(columns.start(column) + this.unixOffset, true)}`;
    if (!columns.known(column)) return [time, 'nothing is known of this time'];
    return [time, ...this.series.map((one) => `${one.name} ${short(this.value(one, column))}`)];
  }
}

export class Charts {
  constructor(element, tip) {
    this.charts = CHARTS.map((chart) => new Chart(chart, tip));
    element.append(...this.charts.map(({ section }) => section));
  }

  draw(view) {
    this.charts.forEach((chart) => chart.draw(view));
  }
}
