// Shared parts of all drawings: visibility, size in device pixels, colours of the style sheet, and
// the time axis.

import { clock } from './format.js';

const probe = document.createElement('span');
probe.hidden = true;
document.body.append(probe);
const colors = new Map();

/** Returns the colour of the style sheet's property `--name` in the current theme. */
export function color(name) {
  let value = colors.get(name);
  if (value === undefined) {
    probe.style.color = `var(--${name})`;
    value = getComputedStyle(probe).color;
    colors.set(name, value);
  }
  return value;
}

/** Forgets all colours. Call it when the theme changes. */
export function forgetColors() {
  colors.clear();
}

/**
 * Elements that are on the screen or near it. Others are not drawn. The margin is so large that a
 * picture of the whole page shows all panels.
 */
const seen = new WeakSet();
const observer = new IntersectionObserver((entries) => {
  let appeared = false;
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) {
      appeared ||= !seen.has(target);
      seen.add(target);
    } else {
      seen.delete(target);
    }
  }
  if (appeared) dispatchEvent(new Event('redraw'));
}, { rootMargin: '3000px' });
const resized = new ResizeObserver(() => dispatchEvent(new Event('redraw')));

/** Observes the size and the visibility of an element. */
export function watch(element) {
  observer.observe(element);
  resized.observe(element);
  return element;
}

export function unwatch(element) {
  observer.unobserve(element);
  resized.unobserve(element);
}

export function isSeen(element) {
  return seen.has(element);
}

/** Returns the density class for a number of rows: more rows are lower. */
export function crowd(rows) {
  return rows > 13 ? 'very' : rows > 6 ? 'yes' : rows > 3 ? 'some' : 'no';
}

/** The room to the left of a plot for the labels of its vertical axis, in pixels. */
export const GUTTER = 48;

/**
 * Returns a cleared context in CSS pixels, or null if the canvas is not visible. `left` pixels stay
 * free on the left: there x is negative, and `width` does not include them.
 */
export function begin(canvas, left = 0) {
  const width = canvas.clientWidth - left;
  const height = canvas.clientHeight;
  if (!isSeen(canvas) || width <= 0 || height === 0) return null;
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(canvas.clientWidth * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, left * ratio, 0);
  context.clearRect(-left, 0, width + left, height);
  return { context, width, height };
}

/** Draws text that is readable on any background. */
export function label(context, text, x, y) {
  context.font = '10px system-ui, sans-serif';
  context.lineJoin = 'round';
  context.lineWidth = 3;
  context.strokeStyle = color('card');
  context.strokeText(text, x, y);
  context.fillStyle = color('label');
  context.fillText(text, x, y);
}

/** Draws a label of the vertical axis, in the gutter. */
export function sideLabel(context, text, y) {
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  label(context, text, -5, y);
}

/** Fills the ground of a plot. */
export function ground(context, width, height, name = 'ground') {
  context.fillStyle = color(name);
  context.fillRect(0, 0, width, height);
}

/** Returns the index of the column at `x` of a canvas whose plot begins at the gutter. */
export function columnAt(canvas, columns, x) {
  const share = (x - GUTTER) / (canvas.clientWidth - GUTTER);
  return Math.min(Math.max(Math.floor(share * columns.count), 0), columns.count - 1);
}

/** Returns the distance between two columns in a canvas whose plot begins at the gutter. */
export function columnWidth(canvas, columns) {
  return (canvas.clientWidth - GUTTER) / columns.count;
}

/** Sets the description of a canvas, if it changes. */
export function describe(canvas, text) {
  if (canvas.getAttribute('aria-label') !== text) canvas.setAttribute('aria-label', text);
}

/** Intervals between time marks, in seconds. */
const STEPS = [5, 10, 15, 30, 60, 120, 300];

/** Returns the round times of day in the columns, as pairs of (x, Unix ms). */
export function marks(columns, unixOffset, width, apart = 80) {
  const range = columns.count * columns.width;
  const step = 1000 * (STEPS.find((s) => (s * 1000 * width) / range >= apart) ?? STEPS.at(-1));
  const from = columns.start(columns.first) + unixOffset;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at < from + range; at += step) {
    found.push([((at - from) / range) * width, at]);
  }
  return found;
}

/** Draws the times of day below the columns. */
export function drawAxis(canvas, columns, unixOffset) {
  const drawing = begin(canvas, GUTTER);
  if (!drawing) return;
  const { context, width } = drawing;
  context.textBaseline = 'top';
  for (const [x, at] of marks(columns, unixOffset, width)) {
    context.fillStyle = color('grid');
    context.fillRect(Math.round(x), 0, 1, 4);
    context.textAlign = x < 26 ? 'left' : x > width - 26 ? 'right' : 'center';
    label(context, clock(at), Math.min(Math.max(x, 0), width), 5);
  }
}
