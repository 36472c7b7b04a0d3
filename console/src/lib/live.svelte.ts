// Live rates, one sample per second, from the event stream of the daemon. Without the stream, rates are computed from
// polled counters. Other modules see no difference, except that latencies need the stream.

import { disks, events, sessions, status, volumes } from './resources.svelte';
import type { Event } from './types';

/** Samples kept per object: five minutes. */
const SAMPLES_MAX = 300;
/** Latency buckets of a sample: below 8 µs, below 16 µs, and so on. */
export const ROWS = 24;

/** One sample. Rates are per second, sizes in bytes, latencies in microseconds; latencies and buckets only if known. */
export interface Sample {
  at: number;
  reads: number;
  writes: number;
  readBytes: number;
  writtenBytes: number;
  busy: number;
  waitUs: number;
  p50?: number;
  p99?: number;
  rows?: number[];
}

/** Samples of an object with the totals of the latest one. */
export interface LiveRates {
  seconds: Sample[];
  last: Sample | undefined;
  iops: number;
  bytes: number;
}

interface Totals {
  reads: number;
  writes: number;
  readBytes: number;
  writtenBytes: number;
  busyNs?: number;
  waitedNs?: number;
}

const IDLE = { reads: 0, writes: 0, readBytes: 0, writtenBytes: 0, busy: 0, waitUs: 0 };

/** Samples of one object, latest last. */
class Rates {
  seconds: Sample[] = [];
  private before: (Totals & { at: number }) | undefined;

  add(second: Sample): void {
    this.seconds.push(second);
    if (this.seconds.length > SAMPLES_MAX) this.seconds.shift();
  }

  count(now: number, counted: Totals): void {
    const { before } = this;
    this.before = { ...counted, at: now };
    if (!before || now <= before.at) return;
    const per = 1000 / (now - before.at);
    const moved = (key: 'reads' | 'writes' | 'readBytes' | 'writtenBytes') =>
      Math.max(0, counted[key] - before[key]) * per;
    const operations = Math.max(0, counted.reads + counted.writes - before.reads - before.writes);
    const waited = (counted.waitedNs ?? 0) - (before.waitedNs ?? 0);
    const busy = ((counted.busyNs ?? 0) - (before.busyNs ?? 0)) / ((now - before.at) * 1e6);
    this.add({
      at: now,
      reads: moved('reads'),
      writes: moved('writes'),
      readBytes: moved('readBytes'),
      writtenBytes: moved('writtenBytes'),
      busy: Math.min(1, Math.max(0, busy)),
      waitUs: operations > 0 ? Math.max(0, waited) / operations / 1000 : 0,
    });
  }

  /** Returns a new object each time, so that Svelte renders it again. */
  now(): LiveRates {
    const last = this.seconds.at(-1);
    return {
      seconds: this.seconds,
      last,
      iops: last ? last.reads + last.writes : 0,
      bytes: last ? last.readBytes + last.writtenBytes : 0,
    };
  }
}

/** Message of the event stream, once per second. Idle objects are omitted. */
interface Counters {
  reads: number;
  writes: number;
  others: number;
  read_bytes: number;
  written_bytes: number;
  p50_us: number;
  p99_us: number;
  p999_us: number;
  latency_histogram: number[];
}
interface StreamSample {
  total: Counters;
  volumes: (Counters & { volume: string; cause: Bottleneck | null })[];
  sessions: (Counters & { id: number })[];
  disks: {
    disk: string;
    reads: number;
    writes: number;
    read_bytes: number;
    written_bytes: number;
    mean_us: number;
    busy: number;
  }[];
}

/** Bottleneck of a slow volume, as determined by the daemon. */
export type Bottleneck =
  | { kind: 'iops_limit'; iops: number }
  | { kind: 'bandwidth_limit'; bandwidth: number }
  | { kind: 'disk'; disk: string; mean_us: number; busy: number }
  | { kind: 'rebuild'; pool: string }
  | { kind: 'lost'; pool: string };

class Live {
  /** Increases with every new sample; reading it subscribes a component to updates. */
  tick = $state(0);
  /** True while the event stream is connected. */
  streaming = $state(false);
  /** Bottlenecks of slow volumes by volume name, slowest first. */
  bottlenecks = $state.raw<Map<string, Bottleneck>>(new Map());
  private readonly total = new Rates();
  private readonly volumes = new Map<string, Rates>();
  private readonly disks = new Map<string, Rates>();
  private readonly sessions = new Map<number, Rates>();
  private started = false;

  start(): void {
    if (this.started) return;
    this.started = true;
    volumes.subscribe((list) => {
      if (this.streaming) return;
      const now = performance.now();
      const sum = { reads: 0, writes: 0, readBytes: 0, writtenBytes: 0 };
      for (const { name, counters } of list) {
        const counted = {
          reads: counters.reads,
          writes: counters.writes,
          readBytes: counters.read_bytes,
          writtenBytes: counters.written_bytes,
        };
        ratesOf(this.volumes, name).count(now, counted);
        for (const key of Object.keys(sum) as (keyof typeof sum)[]) sum[key] += counted[key];
      }
      this.total.count(now, sum);
      prune(
        this.volumes,
        list.map((volume) => volume.name),
      );
      this.tick += 1;
    });
    disks.subscribe((list) => {
      if (this.streaming) return;
      const now = performance.now();
      for (const { name, path, counters: c } of list) {
        ratesOf(this.disks, name ?? path).count(now, {
          reads: c.reads,
          writes: c.writes,
          readBytes: c.read_bytes,
          writtenBytes: c.written_bytes,
          busyNs: c.busy_ns,
          waitedNs: c.waited_ns,
        });
      }
      prune(
        this.disks,
        list.map((disk) => disk.name ?? disk.path),
      );
      this.tick += 1;
    });
    sessions.subscribe((list) => {
      if (this.streaming) return;
      const now = performance.now();
      for (const s of list)
        ratesOf(this.sessions, s.id).count(now, {
          reads: s.commands,
          writes: 0,
          readBytes: s.read_bytes,
          writtenBytes: s.written_bytes,
        });
      prune(
        this.sessions,
        list.map((session) => session.id),
      );
      this.tick += 1;
    });
    status.keep();
    volumes.keep();
    this.listen();
  }

  /** Rates of a volume, empty before the first sample. */
  volume(name: string): LiveRates {
    void this.tick;
    return (this.volumes.get(name) ?? NO_RATES).now();
  }
  disk(name: string): LiveRates {
    void this.tick;
    return (this.disks.get(name) ?? NO_RATES).now();
  }
  session(id: number): LiveRates {
    void this.tick;
    return (this.sessions.get(id) ?? NO_RATES).now();
  }
  all(): LiveRates {
    void this.tick;
    return this.total.now();
  }

  private listen(): void {
    const source = new EventSource('/api/v1/stream?limit=1000');
    source.addEventListener('rates', (message) => {
      this.streaming = true;
      for (const resource of [volumes, disks, sessions]) resource.slowdown = 5;
      this.add(JSON.parse((message as MessageEvent<string>).data) as StreamSample);
    });
    source.addEventListener('event', (message) => {
      const event = JSON.parse((message as MessageEvent<string>).data) as Event;
      const known = events.value ?? [];
      events.value = [...known.filter((one) => one.number !== event.number), event];
      void status.refresh();
    });
    source.onerror = () => {
      this.streaming = false;
      for (const resource of [volumes, disks, sessions]) resource.slowdown = 1;
      // The browser reconnects a broken stream, but not a refused one: retry that later.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.listen(), 30_000);
    };
  }

  private add(moment: StreamSample): void {
    const at = performance.now();
    const second = (m: Counters): Sample => ({
      at,
      reads: m.reads,
      writes: m.writes,
      readBytes: m.read_bytes,
      writtenBytes: m.written_bytes,
      busy: 0,
      waitUs: 0,
      ...(m.latency_histogram.some((n) => n > 0) ? { p50: m.p50_us, p99: m.p99_us } : {}),
      rows: m.latency_histogram,
    });
    this.total.add(second(moment.total));
    addSamples(this.volumes, at, new Map(moment.volumes.map((one) => [one.volume, second(one)])));
    addSamples(this.sessions, at, new Map(moment.sessions.map((one) => [one.id, second(one)])));
    addSamples(
      this.disks,
      at,
      new Map(
        moment.disks.map((d) => [
          d.disk,
          {
            at,
            reads: d.reads,
            writes: d.writes,
            readBytes: d.read_bytes,
            writtenBytes: d.written_bytes,
            busy: d.busy,
            waitUs: d.mean_us,
          },
        ]),
      ),
    );
    this.bottlenecks = new Map(moment.volumes.flatMap((one) => (one.cause ? [[one.volume, one.cause] as const] : [])));
    this.tick += 1;
  }
}

const NO_RATES = new Rates();

/** Adds one sample per object, idle if not mentioned. Objects that were idle for all kept samples are removed. */
function addSamples<K>(map: Map<K, Rates>, at: number, samples: Map<K, Sample>): void {
  for (const key of samples.keys()) ratesOf(map, key);
  for (const [key, rates] of map) {
    const second = samples.get(key);
    rates.add(second ?? { at, ...IDLE });
    if (!second && rates.seconds.every((one) => one.reads + one.writes + one.busy === 0)) map.delete(key);
  }
}

function ratesOf<K>(map: Map<K, Rates>, key: K): Rates {
  let rates = map.get(key);
  if (!rates) map.set(key, (rates = new Rates()));
  return rates;
}

function prune<K>(map: Map<K, Rates>, keys: K[]): void {
  if (map.size === keys.length) return;
  const kept = new Set(keys);
  for (const key of map.keys()) if (!kept.has(key)) map.delete(key);
}

export const live = new Live();
