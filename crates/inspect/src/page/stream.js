// The stream of snapshots. It reconnects whenever it ends.

const AGAIN_MS = 2000;

/** The stream counts as lost after this time without a snapshot, and several missing ones. */
const SILENCE_MS = 5000;
const MISSING = 3;

export class Stream {
  /**
   * Calls `snapshot(data)` for each snapshot, and `state('connecting' | 'live' | 'lost' | 'ended')`
   * for each change.
   */
  constructor({ snapshot, state }) {
    Object.assign(this, { snapshot, state });
    this.ended = false;
    this.silence = SILENCE_MS;
    this.open();
    setInterval(() => {
      if (performance.now() - this.heard > this.silence) this.lose();
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
      const snapshot = JSON.parse(event.data);
      this.silence = Math.max(SILENCE_MS, MISSING * snapshot.period_ms);
      this.snapshot(snapshot);
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
