// A table of thief and victim. A cell is darker the more the row took from the column.

import { isSeen, watch } from './canvas.js';
import { exact, short } from './format.js';

/** The minimum time between updates: with many workers the table has thousands of cells. */
const REST_MS = 900;

function cell(tag, scope) {
  const element = document.createElement(tag);
  if (scope) element.scope = scope;
  return element;
}

export class Matrix {
  constructor(table) {
    this.table = watch(table);
    this.drawn = -Infinity;
    this.of = null;
    this.cells = [];
  }

  /** Creates a row per thief in `rows`, and a column per victim in `columns`. */
  arrange(rows, columns) {
    const shape = `${rows.length}x${columns.length}`;
    if (this.shape === shape) return;
    this.shape = shape;
    const head = cell('thead');
    const heads = cell('tr');
    heads.append(cell('td'), ...columns.map((name) => Object.assign(cell('th', 'col'), { textContent: name })));
    head.append(heads);
    const body = cell('tbody');
    this.cells = rows.map((name) => {
      const row = cell('tr');
      const cells = columns.map(() => {
        const element = cell('td');
        const rate = cell('span');
        const total = cell('small');
        element.append(rate, total);
        return { element, rate, total };
      });
      row.append(Object.assign(cell('th', 'row'), { textContent: name }), ...cells.map(({ element }) => element));
      body.append(row);
      return { row, cells };
    });
    this.table.replaceChildren(head, body);
  }

  /**
   * `perSecond(row, column)` and `total(row, column)` return the numbers; `shown(row)` tells
   * whether a row has any. The table is drawn at once if its source `of` changes or if it `isHeld`
   * (paused), because no later drawing may follow. Otherwise updates are rare.
   */
  draw({ of, perSecond, total, shown, isHeld }) {
    const rests = this.of === of && !isHeld && performance.now() - this.drawn < REST_MS;
    if (rests || !isSeen(this.table)) return;
    this.of = of;
    this.drawn = performance.now();
    let most = 0;
    this.cells.forEach(({ cells }, row) => cells.forEach((_, column) => { most = Math.max(most, perSecond(row, column)); }));
    this.cells.forEach(({ row: element, cells }, row) => {
      element.hidden = !shown(row);
      cells.forEach((one, column) => {
        const [rate, sum] = [perSecond(row, column), total(row, column)];
        const texts = row === column && sum === 0 ? ['·', ''] : [rate > 0 ? short(rate) : '0', exact(sum)];
        if (one.rate.textContent !== texts[0]) one.rate.textContent = texts[0];
        if (one.total.textContent !== texts[1]) one.total.textContent = texts[1];
        const share = most > 0 ? Math.log1p(rate) / Math.log1p(most) : 0;
        one.element.style.setProperty('--share', `${Math.round(share * 45)}%`);
      });
    });
  }
}
