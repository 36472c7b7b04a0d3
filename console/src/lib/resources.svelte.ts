// Cached API resources, polled while a component uses them.

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

/** Page sizes: a small first page that loads quickly, then the maximum of the API. */
const FIRST_PAGE = 500;
const PAGE = 10_000;

/** One API resource: its latest value, and the latest error if any. */
export class Resource<T> {
  value = $state.raw<T | undefined>();
  problem = $state.raw<Problem | undefined>();
  /** Factor on the polling interval while the event stream delivers the changes. */
  slowdown = 1;
  /** First page of a list, until the other pages are loaded. */
  first = $state.raw<T | undefined>();
  /** Total number of items, known from the first page on. */
  total = $state(0);
  /** Not reactive: an effect that loads a list must not run again when the list arrives. */
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

  /** Loads the resource and polls it during the lifetime of the calling component. */
  use(): void {
    onMount(() => {
      this.users += 1;
      void this.refresh();
      return () => {
        this.users -= 1;
      };
    });
  }

  /** Loads the resource and polls it from now on. */
  keep(): void {
    this.users += 1;
    void this.refresh();
  }

  /** Calls `then` with every new value. */
  subscribe(then: (value: T) => void): void {
    this.subscribers.push(then);
  }

  /** Loads the resource; joins a request that is running. */
  refresh(): Promise<void> {
    this.running ??= this.load().finally(() => {
      this.running = undefined;
    });
    return this.running;
  }

  /** Loads the resource after a change: a request that was already running may return the old state. */
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
      // Long lists are polled less often.
      const long = Array.isArray(this.value) && this.value.length > 500 ? 5 : 1;
      this.due = seconds + this.everySeconds * Math.max(long, this.slowdown);
    }
  }

  /** Loads a list page by page, so that responses stay bounded and the first rows appear early. */
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
/** Enables polling after sign-in. */
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

/** One object of a long list, loaded on its own while the list is loading. */
export class Single<T> {
  value = $state.raw<T | undefined>();
  /** True if no object has this name. */
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

/** Reloads the resources that a change may have affected. */
export async function reload(...resources: { reload(): Promise<void> }[]): Promise<void> {
  await Promise.all(resources.map((resource) => resource.reload()));
}
