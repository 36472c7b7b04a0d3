// Parser of the run files of `blockyard lab` (format 1): the displayed values of each point are medians over its
// rounds.

interface Tally {
  commands: number;
  bytes: number;
  errors: number;
  latency: { buckets: [number, number][] };
}
interface Sample {
  seconds: number;
  reads: Tally;
  writes: Tally;
}
interface RunFile {
  format: number;
  scenario: { name?: string; title?: string };
  machine: { facts: Record<string, string> };
  begun: string;
  complete: boolean;
  points: { labels: Record<string, string>; samples: Sample[]; untried?: string }[];
}

export interface Point {
  label: string;
  untried?: string;
  iops: number;
  bytes: number;
  p50: number;
  p99: number;
  errors: number;
  rounds: number;
}
export interface Run {
  title: string;
  begun: string;
  complete: boolean;
  facts: [string, string][];
  points: Point[];
}

const median = (values: number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length === 0 ? 0 : sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
};

/** Latency quantile in microseconds; `part` is 0.5 for p50. */
function quantile(sample: Sample, part: number): number {
  const buckets = [...sample.reads.latency.buckets, ...sample.writes.latency.buckets].sort(([a], [b]) => a - b);
  const all = buckets.reduce((sum, [, n]) => sum + n, 0);
  let before = 0;
  for (const [ns, n] of buckets) {
    before += n;
    if (before >= all * part) return ns / 1000;
  }
  return 0;
}

/** Parses a run file. Throws an Error with a message for the user. */
export function parseRun(text: string): Run {
  let run: RunFile;
  try {
    run = JSON.parse(text) as RunFile;
  } catch {
    throw new Error('Not a run file: invalid JSON. Create one with blockyard lab run … --out FILE.');
  }
  if (run.format !== 1 || !Array.isArray(run.points))
    throw new Error(`Unsupported run file format: ${run.format ?? 'none'}. The console reads format 1.`);
  return {
    title: run.scenario?.title ?? run.scenario?.name ?? 'Benchmark run',
    begun: run.begun,
    complete: run.complete,
    facts: Object.entries(run.machine?.facts ?? {}),
    points: run.points.map((point) => ({
      label:
        Object.entries(point.labels)
          .map(([axis, at]) => `${axis} ${at}`)
          .join(', ') || 'Load',
      ...(point.untried ? { untried: point.untried } : {}),
      rounds: point.samples.length,
      iops: median(point.samples.map((s) => (s.reads.commands + s.writes.commands) / s.seconds)),
      bytes: median(point.samples.map((s) => (s.reads.bytes + s.writes.bytes) / s.seconds)),
      p50: median(point.samples.map((s) => quantile(s, 0.5))),
      p99: median(point.samples.map((s) => quantile(s, 0.99))),
      errors: point.samples.reduce((sum, s) => sum + s.reads.errors + s.writes.errors, 0),
    })),
  };
}
