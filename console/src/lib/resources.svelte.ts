// What the daemon says of each noun, asked again while somebody looks.

import { onMount } from 'svelte';
import { poll, pollPage, Problem } from './api';
import type {
  Alert,
  Auth,
  Disk,
  Event,
  Finding,
  Host,
  HostGroup,
  Operation,
  Pool,
  Portal,
  PortalGroup,
  Presentation,
  Receiver,
  DeniedLogin,
  Session,
  Silence,
  Snapshot,
  Status,
  Target,
  Volume,
} from './types';

/** Rows of the first page of a list, which are soon there, and of each that follows: the most that the array gives at once. */
const FIRST_PAGE = 500;
const PAGE = 10_000;

/** One noun: its latest answer, and the latest refusal if there was one. */
export class Resource<T> {
  value = $state.raw<T | undefined>();
  problem = $state.raw<Problem | undefined>();
  /** So many times less often: what moves is told otherwise. */
  slowdown = 1;
  /** The first page of a list that comes in several, until all of it is there. */
  first = $state.raw<T | undefined>();
  /** How many there are, also while they are still coming. */
  total = $state(0);
  /** Not reactive: an effect that asks for a list must not run again because the list has come. */
  private loaded = false;
  private users = 0;
  private running: Promise<void> | undefined;
  private due = 0;
  private subscribers: ((value: T) => void)[] = [];

  constructor(
    readonly path: string,
    private readonly everySeconds: number,
    private readonly isList = false,
  ) {
    all.push(this as Resource<unknown>);
  }

  /** It is asked for at once, and kept fresh as long as the calling component lives. */
  use(): void {
    onMount(() => {
      this.users += 1;
      void this.refresh();
      return () => {
        this.users -= 1;
      };
    });
  }

  /** It is kept fresh from now on. */
  keep(): void {
    this.users += 1;
    void this.refresh();
  }

  /** `then` hears every answer. */
  subscribe(then: (value: T) => void): void {
    this.subscribers.push(then);
  }

  /** Asks for it, unless it is being asked for. */
  refresh(): Promise<void> {
    this.running ??= this.load().finally(() => {
      this.running = undefined;
    });
    return this.running;
  }

  /** Asks for it after a change: what was asked for before that may be as it was. */
  async reload(): Promise<void> {
    await this.running;
    await this.refresh();
  }

  private async load(): Promise<void> {
    try {
      const value = this.isList ? await this.pages() : await poll<T>(this.path);
      this.value = value;
      this.problem = undefined;
      for (const then of this.subscribers) then(value);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.problem = error;
    } finally {
      // A long list is asked for less often.
      const long = Array.isArray(this.value) && this.value.length > 500 ? 5 : 1;
      this.due = seconds + this.everySeconds * Math.max(long, this.slowdown);
    }
  }

  /** All of the list, page by page: no answer is longer than a page, and the first rows are there before the last. */
  private async pages(): Promise<T> {
    const all: unknown[] = [];
    let cursor: string | undefined;
    do {
      const page = await pollPage<unknown>(this.path, { limit: cursor || this.loaded ? PAGE : FIRST_PAGE, cursor });
      all.push(...page.items);
      this.total = page.total ?? all.length;
      cursor = page.next;
      if (cursor && !this.loaded) this.first = all.slice() as T;
    } while (cursor);
    this.loaded = true;
    this.first = undefined;
    return all as T;
  }

  tick(): void {
    if (this.users > 0 && seconds >= this.due) void this.refresh();
  }
}

const all: Resource<unknown>[] = [];
let seconds = 0;
let mayPoll = false;
/** Whether somebody is signed in: nothing is asked before. */
export function allowPolling(may: boolean): void {
  mayPoll = may;
}
setInterval(() => {
  if (!mayPoll || document.visibilityState === 'hidden') return;
  seconds += 1;
  for (const resource of all) resource.tick();
}, 1000);

export const status = new Resource<Status>('/status', 1);
export const disks = new Resource<Disk[]>('/disks', 1, true);
export const pools = new Resource<Pool[]>('/pools', 1, true);
export const volumes = new Resource<Volume[]>('/volumes', 1, true);
export const snapshots = new Resource<Snapshot[]>('/snapshots', 3, true);
export const hosts = new Resource<Host[]>('/hosts', 3, true);
export const hostGroups = new Resource<HostGroup[]>('/groups', 3, true);
export const targets = new Resource<Target[]>('/targets', 5, true);
export const presentations = new Resource<Presentation[]>('/presentations', 3, true);
export const sessions = new Resource<Session[]>('/sessions', 1, true);
export const portals = new Resource<Portal[]>('/portals', 2, true);
export const portalGroups = new Resource<PortalGroup[]>('/portal-groups', 5);
export const deniedLogins = new Resource<DeniedLogin[]>('/refused', 3, true);
export const auth = new Resource<Auth>('/auth', 10);
export const balance = new Resource<string>('/balance', 10);
export const operations = new Resource<Operation[]>('/operations', 1, true);
export const alerts = new Resource<Alert[]>('/alerts', 3, true);
export const silences = new Resource<Silence[]>('/silences', 3, true);
export const receivers = new Resource<Receiver[]>('/receivers', 5, true);
export const findings = new Resource<Finding[]>('/findings', 15);
export const events = new Resource<Event[]>('/events?limit=300', 2);

/** One of a long list, asked for by itself while the list is still coming. */
export class Single<T> {
  value = $state.raw<T | undefined>();
  /** True when there is none of this name. */
  missing = $state(false);

  constructor(list: Resource<T[]>, path: string) {
    if (list.value === undefined) void this.load(path);
  }

  private async load(path: string): Promise<void> {
    try {
      this.value = await poll<T>(path);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.missing = error.status === 404;
    }
  }
}

/** After a change: what it may have moved is asked for at once. */
export async function reload(...resources: { reload(): Promise<void> }[]): Promise<void> {
  await Promise.all(resources.map((resource) => resource.reload()));
}
