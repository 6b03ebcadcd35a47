// The stream of snapshots: it is opened again whenever it ends.

const AGAIN_MS = 2000;

/** Without a snapshot for so long the stream is as good as lost. */
const SILENCE_MS = 5000;

export class Stream {
  /** Calls `snapshot(data)` for each, and `state('connecting' | 'live' | 'lost' | 'ended')` at changes. */
  constructor({ snapshot, state }) {
    Object.assign(this, { snapshot, state });
    this.ended = false;
    this.open();
    setInterval(() => {
      if (performance.now() - this.heard > SILENCE_MS) this.lose();
    }, 1000);
  }

  open() {
    clearTimeout(this.timer);
    this.timer = null;
    this.source?.close();
    this.heard = performance.now();
    const source = new EventSource('events');
    this.source = source;
    source.addEventListener('snapshot', (event) => {
      this.heard = performance.now();
      this.ended = false;
      this.state('live');
      this.snapshot(JSON.parse(event.data));
    });
    source.addEventListener('end', () => {
      this.ended = true;
      this.lose();
    });
    source.addEventListener('error', () => this.lose());
  }

  lose() {
    this.state(this.ended ? 'ended' : 'lost');
    this.source.close();
    this.timer ??= setTimeout(() => this.open(), AGAIN_MS);
  }
}
