// The rows of a table. Data of the runtime is inserted as text, never as HTML.

/** A table body whose cells are changed in place, so that selected text stays selected. */
export class Rows {
  constructor(body, classes) {
    this.body = body;
    this.classes = classes;
  }

  /** `rows` is a list of lists of texts. `mark(row element, index)` may add to a row. */
  show(rows, mark = () => {}) {
    while (this.body.rows.length > rows.length) this.body.lastElementChild.remove();
    rows.forEach((texts, index) => {
      const row = this.body.rows[index] ?? this.body.insertRow();
      texts.forEach((text, i) => {
        const cell = row.cells[i] ?? row.appendChild(document.createElement(i === 0 ? 'th' : 'td'));
        if (cell.textContent !== text) cell.textContent = text;
        cell.className = this.classes[i] ?? '';
        if (i === 0) cell.scope = 'row';
      });
      mark(row, index);
    });
  }
}
