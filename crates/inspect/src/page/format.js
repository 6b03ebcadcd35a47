// Formatting of numbers with readable units.

const exactly = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** Formats three significant digits without an exponent. */
function digits(value) {
  if (value >= 99.95) return value.toFixed(0);
  if (value >= 9.995) return value.toFixed(1).replace(/\.0$/, '');
  return value.toFixed(2).replace(/\.?0+$/, '');
}

/** Formats a duration in nanoseconds. */
export function duration(ns) {
  if (ns < 999.5) return `${Math.round(ns)} ns`;
  if (ns < 999.5e3) return `${digits(ns / 1e3)} µs`;
  if (ns < 999.5e6) return `${digits(ns / 1e6)} ms`;
  return `${digits(ns / 1e9)} s`;
}

/** Formats a count with all digits. */
export function exact(count) {
  return exactly.format(count);
}

/** Formats a count with about three digits. */
export function short(count) {
  if (count >= 999.5e9) return `${digits(count / 1e12)} T`;
  if (count >= 999.5e6) return `${digits(count / 1e9)} G`;
  if (count >= 999.5e3) return `${digits(count / 1e6)} M`;
  if (count >= 9999.5) return `${digits(count / 1e3)} k`;
  if (count >= 999.5) return exact(count);
  return digits(count);
}

/** Formats a fraction as a percentage. */
export function percent(share) {
  const value = share * 100;
  return value > 0 && value < 1 ? '<1 %' : `${Math.round(value)} %`;
}

/** Formats an uptime in milliseconds with its two largest units. */
export function uptime(ms) {
  const s = Math.floor(ms / 1000);
  const parts = [[Math.floor(s / 86400), 'd'], [Math.floor(s / 3600) % 24, 'h'], [Math.floor(s / 60) % 60, 'min'], [s % 60, 's']];
  const first = parts.findIndex(([n]) => n > 0);
  return parts.slice(first < 0 ? 3 : first).slice(0, 2).map(([n, unit]) => `${n} ${unit}`).join(' ');
}

const two = (n) => String(n).padStart(2, '0');

/** Formats Unix milliseconds as the local time of day, optionally with tenths of a second. */
export function clock(unixMs, tenths = false) {
  const date = new Date(unixMs);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return tenths ? `${time}.${Math.floor(date.getMilliseconds() / 100)}` : time;
}
