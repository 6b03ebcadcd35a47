// The colours of counts: viridis, whose brightness alone tells the order. Lighter is more. The ground
// of the heat map is dark in each theme, so a colour means the same everywhere.

// Eleven samples of matplotlib's viridis. Linear interpolation between them is close enough.
const VIRIDIS = [
  [68, 1, 84], [72, 36, 117], [65, 68, 135], [53, 95, 141], [42, 120, 142], [33, 145, 140],
  [34, 168, 132], [68, 191, 112], [122, 209, 81], [189, 223, 38], [253, 231, 37],
];

function viridis(t) {
  const at = Math.min(Math.max(t, 0), 1) * (VIRIDIS.length - 1);
  const i = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return VIRIDIS[i].map((from, channel) => Math.round(from + (VIRIDIS[i + 1][channel] - from) * (at - i)));
}

/** The position of the smallest count. It keeps the colour distinct from the dark ground. */
const FEWEST = 0.14;

export class Palette {
  /** `most` is the count with the last colour. */
  constructor(most) {
    this.most = most;
    this.colors = Array.from({ length: 256 }, (_, i) => viridis(FEWEST + (1 - FEWEST) * (i / 255)));
  }

  /** Returns the position of a count on the scale, from 0 to 1. */
  position(count) {
    return Math.min(Math.log1p(count) / Math.log1p(this.most), 1);
  }

  /** Returns the colour of a count above 0 as red, green and blue. */
  color(count) {
    return this.colors[Math.round(this.position(count) * 255)];
  }
}
