// The tooltip, which works with a pointer, a finger, and the arrow keys.

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Tip {
  constructor(element) {
    this.element = element;
    this.cross = document.createElement('div');
    this.cross.className = 'cross';
    this.cross.hidden = true;
    document.body.append(this.cross);
    this.at = null;
    addEventListener('scroll', () => this.hide(), { passive: true });
  }

  /**
   * Shows the lines of text that `pick(x, y)` returns for a point of the canvas, if any. `step(dx,
   * dy)` returns the distance of an arrow key. A click or Enter calls `choose(x, y)`.
   */
  attach(canvas, pick, step, choose) {
    const show = (x, y) => {
      this.at = { canvas, pick, x, y };
      this.refresh();
    };
    canvas.addEventListener('pointermove', (event) => show(event.offsetX, event.offsetY));
    canvas.addEventListener('pointerdown', (event) => show(event.offsetX, event.offsetY));
    canvas.addEventListener('pointerleave', (event) => {
      // A lifted finger has chosen the point, so keep the tooltip.
      if (event.pointerType === 'mouse') this.hide();
    });
    canvas.addEventListener('blur', () => this.hide());
    canvas.addEventListener('click', (event) => choose?.(event.offsetX, event.offsetY));
    canvas.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') return this.hide();
      if (event.key === 'Enter' && this.at?.canvas === canvas) return choose?.(this.at.x, this.at.y);
      const arrow = ARROWS[event.key];
      if (!arrow) return;
      event.preventDefault();
      const { clientWidth: width, clientHeight: height } = canvas;
      const { x, y } = this.at?.canvas === canvas ? this.at : { x: width - 1, y: height / 2 };
      const [dx, dy] = step?.(...arrow) ?? [arrow[0] * 4, arrow[1] * 4];
      show(Math.min(Math.max(x + dx, 0), width - 1), Math.min(Math.max(y + dy, 0), height - 1));
    });
  }

  /** Updates the text of the current point, because the data may have changed. */
  refresh() {
    if (!this.at) return;
    const { canvas, pick, x, y } = this.at;
    const lines = canvas.isConnected ? pick(x, y) : null;
    if (!lines) return this.hide();
    this.element.textContent = lines.join('\n');
    this.element.hidden = false;
    const box = canvas.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = Math.min(Math.max(box.left + x + 14, 4), document.documentElement.clientWidth - width - 4);
    const above = box.top + y - height - 12;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${above > 4 ? above : box.top + y + 16}px`;
    this.cross.hidden = false;
    Object.assign(this.cross.style, { left: `${box.left + x}px`, top: `${box.top}px`, height: `${box.height}px` });
  }

  hide() {
    this.at = null;
    this.element.hidden = true;
    this.cross.hidden = true;
  }
}
