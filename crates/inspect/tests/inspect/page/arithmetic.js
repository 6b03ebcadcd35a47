// The page's arithmetic, over snapshots that are made up: twelve minutes of them, with a gap, pauses, and
// switches of range and stage. Answers what does not hold.
(async () => {
  const { View } = await import('/view.js');
  const { Columns } = await import('/columns.js');
  const { Window } = await import('/window.js');
  const wrong = [];
  const check = (holds, what) => { if (!holds) wrong.push(what); };

  const WORKERS = 3;
  let seed = 1;
  const below = (bound) => {
    seed = (seed * 48271) % 0x7fffffff;
    return seed % bound;
  };
  const bounds = Array.from({ length: 128 }, (_, i) => (i < 127 ? 64 * (i + 1) : null));
  const state = Array.from({ length: WORKERS + 1 }, () => ({
    counts: { fired: 0, armed_local: 0 },
    buckets: [0, 1, 2].map(() => new Map()),
    samples: { running: 0, firing: 0, polling: 0, stealing: 0, parked: 0 },
    steals_from: Array(WORKERS).fill(0),
    rescued_from: Array(WORKERS).fill(0),
  }));
  let at = 17.25;
  const happen = () => state.forEach((entity) => {
    for (const buckets of entity.buckets) {
      for (let i = below(6); i > 0; i--) {
        const bucket = below(128);
        buckets.set(bucket, (buckets.get(bucket) ?? 0) + 1 + below(9));
        entity.counts.fired += 1;
      }
    }
    entity.samples.parked += below(100);
    entity.samples.running += below(100);
    entity.steals_from[below(WORKERS)] += below(3);
    entity.rescued_from[below(WORKERS)] += below(2);
  });
  const snapshot = () => {
    const entities = state.map(({ counts, buckets, samples, steals_from, rescued_from }, id) => ({
      id,
      counts: { ...counts },
      lateness: Object.fromEntries(['wake', 'queue', 'rescued'].map((stage, i) => [stage, { buckets: [...buckets[i]] }])),
      samples: { ...samples },
      steals_from: [...steals_from],
      rescued_from: [...rescued_from],
      pending: below(1000),
      garbage: below(10),
    }));
    const nothing = { pending: 0, garbage: 0 };
    return {
      pid: 1, instance: 'a', period_ms: 250, at_ms: at, unix_ms: 1e12 + at, bounds_ns: bounds, workers: entities.slice(0, WORKERS),
      helpers: entities[WORKERS], clocks: { counts: {}, wall: nothing, boot: nothing },
    };
  };
  const sum = (array) => array.reduce((a, b) => a + b, 0);
  const near = (one, other) => one.length === other.length && one.every((value, i) => Math.abs(value - other[i]) < 1e-3);
  const sumOf = (view, stage, from, to) => {
    let counted = 0;
    for (let number = from; number < to; number++) {
      const frame = view.history.frame(number);
      const into = new Float64Array(128);
      for (let entity = 0; entity <= WORKERS; entity++) frame.addHistogram(stage, entity, into, 0, 1);
      counted += sum(into);
    }
    return counted;
  };

  const view = new View();
  const advanced = () => {
    // What was kept up to date is what is made anew.
    const { columns, sums } = view;
    const again = new View();
    Object.assign(again, view, { history: view.history });
    again.rebuild();
    check(again.columns instanceof Columns && again.sums instanceof Window, 'made anew');
    for (const name of ['lateness', 'steals', 'rescues', 'counts']) {
      check(near(sums[name], again.sums[name]), `${view.range} s ${view.stage} at ${at}: sums of ${name}`);
    }
    check(Math.abs(sums.seconds - again.sums.seconds) < 1e-6, `seconds at ${at}`);
    // Columns are whole, the range begins in one: the oldest may know more than what is made anew.
    for (let column = Math.max(columns.first + 1, 0); column <= columns.last; column++) {
      const [one, other] = [columns, again.columns].map((of) => {
        const slot = of.slot(column);
        return of.lateness.subarray(of.cell(0, slot), of.cell(of.entities - 1, slot) + 128);
      });
      if (!near(one, other)) return check(false, `${view.range} s ${view.stage} at ${at}: column ${column}`);
    }
    // And it is what happened.
    const counted = sumOf(view, ['wake', 'queue', 'rescued'].indexOf(view.stage), sums.first, sums.end);
    check(Math.abs(sums.timers() - counted) < 1e-6, `timers at ${at}`);
  };

  let longest = 0;
  for (let i = 0; i < 2880; i++) {
    if (i === 900) at += 20_000;
    at += 230 + below(40);
    happen();
    view.push(snapshot());
    longest = Math.max(longest, view.history.frames.length);
    if (i === 500) view.choose({ range: 120 });
    if (i === 1500) view.choose({ range: 600, stage: 'queue' });
    if (i === 1700) view.pause(true);
    if (i === 1750) {
      const shown = view.snapshot.at_ms;
      view.choose({ range: 30, stage: 'rescued' });
      check(view.snapshot.at_ms === shown && view.history.latest.at_ms > shown, 'a pause holds what is shown');
      check(Math.abs(view.columns.start(view.columns.last + 1) - shown) < 500, 'a range ends where it is paused');
      view.choose({ range: 600 });
    }
    if (i === 1800) view.pause(false);
    if (i % 97 === 3 && !view.paused) advanced();
  }
  check(longest <= 2400 + 8, `frames are bounded: ${longest}`);
  check(view.history.frames.length >= 2390, `ten minutes are kept: ${view.history.frames.length}`);
  view.pause(true);
  for (let i = 0; i < 6000; i++) {
    at += 250;
    view.push(snapshot());
  }
  check(view.history.frames.length <= 4800, `frames are bounded in a pause: ${view.history.frames.length}`);
  view.choose({ range: 30 });
  view.pause(false);
  advanced();
  // Snapshots that come seldom leave no gaps between them.
  const gapAfter = (ms, period_ms) => {
    at += ms;
    view.push({ ...snapshot(), period_ms });
    return view.history.frames.at(-1).gap;
  };
  check(gapAfter(4000, 250), 'four seconds are a gap');
  check(!gapAfter(10_500, 10_000), 'and none where one comes each ten');
  check(gapAfter(31_000, 10_000), 'but three of these are');
  // Frames in which nothing happened share that.
  at += 250;
  view.push(snapshot());
  const [one, other] = view.history.frames.slice(-2);
  check(one.grown.length === 0 && one.grown === other.grown && one.steals === other.rescues, 'nothing is shared');
  // Another process, be its number the same and its time later: all is new.
  happen();
  view.push({ ...snapshot(), instance: 'b', at_ms: at + 250 });
  check(view.history.frames.length === 0 && view.sums.timers() === 0 && !Number.isNaN(view.sums.perSecond(0)), 'anew');
  check(view.snapshot.instance === 'b', 'the new one is shown');
  return wrong;
})()
