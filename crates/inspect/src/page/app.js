// The live page: connects the stream of snapshots, the view, and the parts that draw it.

import { forgetColors } from './canvas.js';
import { CellPanel } from './cell.js';
import { Charts } from './charts.js';
import { clock } from './format.js';
import { entities } from './frame.js';
import { HeatMap } from './heatmap.js';
import { Lanes } from './lanes.js';
import { Matrix } from './matrix.js';
import { ProfileButton } from './profile.js';
import { Stream } from './stream.js';
import { Tables } from './tables.js';
import { TaskList } from './tasks.js';
import { Tiles } from './tiles.js';
import { Tip } from './tip.js';
import { View } from './view.js';

const find = (id) => document.getElementById(id);
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const THEMES = ['auto', 'dark', 'light'];

/** The interval of redraws for users that prefer reduced motion. */
const CALM_MS = 1000;

const view = new View();
const tip = new Tip(find('tip'));
const tiles = new Tiles(find);
const tables = new Tables(find);
const charts = new Charts(find('charts'), tip);
const heatMap = new HeatMap({
  rows: find('strips'),
  axis: find('lateness-axis'),
  scale: find('scale'),
  tip,
  choose(cell) {
    panel.show(cell, view.stage, view.unixOffset);
    redraw();
  },
});
const panel = new CellPanel(find, () => {
  heatMap.forget();
  redraw();
});
new ProfileButton(find('profile'));
new TaskList(find, () => view.paused);
const lanes = new Lanes({ rows: find('lanes'), axis: find('lanes-axis'), legend: find('lanes-legend'), hint: find('lanes-hint'), tip });
const steals = new Matrix(find('steals'));
const rescues = new Matrix(find('rescues'));

let connection = 'connecting';
let scheduled = false;
let drawn = -Infinity;

/** Draws once in the next animation frame, unless the page is hidden. */
function redraw() {
  if (scheduled || !view.snapshot || document.visibilityState === 'hidden') return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    draw();
  });
}

function draw() {
  delete document.body.dataset.waits;
  drawn = performance.now();
  const { snapshot, columns, sums } = view;
  const rows = entities(snapshot);
  const names = snapshot.workers.map(({ id }) => `worker ${id}`);
  const helped = snapshot.helpers.started > 0;
  tiles.draw(view);
  heatMap.arrange([...names, 'helpers']);
  heatMap.draw(view, helped && sums.timers(rows.length - 1) > 0);
  lanes.arrange(names);
  lanes.draw(view);
  columns.clean();
  charts.draw(view);
  drawMatrix(steals, sums.steals, 'steals_from', names, helped);
  drawMatrix(rescues, sums.rescues, 'rescued_from', names, helped);
  tables.draw(view);
  tip.refresh();
  document.title = `${view.paused ? '⏸ ' : ''}tourbillon ${snapshot.pid}`;
}

function drawMatrix(matrix, grown, field, names, helped) {
  const rows = entities(view.snapshot);
  const { sums } = view;
  matrix.arrange([...names, 'helpers'], names);
  matrix.draw({
    of: sums,
    perSecond: (row, column) => sums.perSecond(grown[row * rows.length + column]),
    total: (row, column) => rows[row][field]?.[column] ?? 0,
    shown: (row) => row < names.length || helped,
    isHeld: view.paused,
  });
}

function showState() {
  const state = connection === 'live' && view.paused ? 'paused' : connection;
  const status = find('status');
  if (status.dataset.state === state) return;
  status.dataset.state = state;
  status.textContent = state;
  const banner = find('banner');
  banner.hidden = state !== 'lost' && state !== 'ended';
  if (banner.hidden) return;
  const shown = view.snapshot ? ` The page shows data from ${clock(view.snapshot.unix_ms)}.` : '';
  const what = state === 'ended'
    ? 'The runtime has ended.'
    : 'Connection lost: the process has ended, or cannot be reached.';
  banner.textContent = `${what}${shown} Trying again.`;
}

function press(buttons, chosen) {
  buttons.forEach((button) => button.setAttribute('aria-pressed', String(button === chosen)));
}

function choices(selector, choose) {
  const buttons = document.querySelectorAll(selector);
  buttons.forEach((button) => button.addEventListener('click', () => {
    press(buttons, button);
    choose(button.dataset);
    redraw();
  }));
}

function pause(paused) {
  view.pause(paused);
  const button = find('pause');
  button.setAttribute('aria-pressed', String(paused));
  button.textContent = paused ? 'Resume' : 'Pause';
  showState();
  redraw();
}

/** Returns the stored theme, or null if the browser does not allow storage. */
function stored() {
  try {
    return localStorage.getItem('theme');
  } catch {
    return null;
  }
}

function setTheme(theme) {
  const root = document.documentElement;
  if (theme === 'auto') delete root.dataset.theme;
  else root.dataset.theme = theme;
  find('theme').textContent = `Theme: ${theme}`;
  find('theme').dataset.chosen = theme;
  try {
    localStorage.setItem('theme', theme);
  } catch {
    // Without storage, the choice only lasts for this page view.
  }
  recolor();
}

function recolor() {
  forgetColors();
  redraw();
}

choices('[data-range]', ({ range }) => view.choose({ range: Number(range) }));
choices('[data-stage]', ({ stage }) => view.choose({ stage }));
find('pause').addEventListener('click', () => pause(!view.paused));
find('theme').addEventListener('click', () => {
  const next = (THEMES.indexOf(find('theme').dataset.chosen) + 1) % THEMES.length;
  setTheme(THEMES[next]);
});
setTheme(THEMES.includes(stored()) ? stored() : 'auto');
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolor);
document.addEventListener('visibilitychange', redraw);
addEventListener('redraw', redraw);
addEventListener('keydown', (event) => {
  // On a button, the space key presses the button.
  if (event.key !== ' ' || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target.closest('button, a, input, select, textarea')) return;
  event.preventDefault();
  pause(!view.paused);
});

new Stream({
  snapshot(data) {
    const fresh = view.push(data);
    if (fresh && (!calm.matches || performance.now() - drawn >= CALM_MS)) redraw();
  },
  state(state) {
    if (connection === state) return;
    connection = state;
    showState();
  },
});
