// The button that samples the workers, if the program has profiles.

/** Says on the button what goes on, and stores the answer when it comes. */
export class ProfileButton {
  constructor(link) {
    if (!link) return;
    this.link = link;
    this.label = link.textContent;
    link.addEventListener('click', (event) => {
      event.preventDefault();
      if (!this.waits) this.ask();
    });
  }

  async ask() {
    this.waits = true;
    this.link.setAttribute('aria-busy', 'true');
    this.say('Sampling 10 s …');
    try {
      // The server demands it, because no page of another site can send it.
      const headers = { 'X-Tourbillon': 'profile' };
      const answer = await fetch(this.link.getAttribute('href'), { headers });
      if (!answer.ok) throw new Error((await answer.text()).trim());
      this.store(await answer.blob());
      this.say(this.label);
    } catch (error) {
      this.say(`No profile: ${error.message}`);
    }
    this.link.removeAttribute('aria-busy');
    this.waits = false;
  }

  /** Stores a file, as a link with a download does. */
  store(blob) {
    const href = URL.createObjectURL(blob);
    const link = Object.assign(document.createElement('a'), { href, download: 'profile.svg' });
    link.click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  }

  say(text) {
    this.link.textContent = text;
  }
}
