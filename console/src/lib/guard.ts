// Optimistic concurrency control. A change carries the tag (If-Match) of the object as displayed when its field or
// dialog was opened. The array refuses it if the object changed since, or if another object has its name; the error
// shows both values.

import { Problem, getWithTag } from './api';
import { humanize } from './format';

type ApiObject = Record<string, unknown>;

/** Fields that identify and configure an object, which its tag covers. All other fields change on their own. */
const GUARDED_FIELDS: Record<string, readonly string[]> = {
  disks: ['path', 'spare'],
  pools: ['id', 'policy'],
  volumes: ['id', 'size', 'policy'],
  snapshots: ['id', 'lock'],
  hosts: ['any', 'initiators', 'networks', 'chap_user', 'chap_demand', 'mutual_chap_user', 'mutual_chap_demand'],
  groups: ['hosts'],
  targets: ['iqn'],
  portals: ['role', 'tag', 'weight', 'drained', 'advertise'],
  'portal-groups': ['access', 'preferred'],
  auth: ['min_algorithm', 'discovery'],
  isns: ['server'],
  receivers: ['delivery', 'trust', 'min_severity', 'gather', 'remind', 'has_secret'],
  users: ['role', 'second_factor', 'password_set'],
};
/** Labels of settings in a conflict; others are shown by their key. */
const SETTING_LABELS: Record<string, string> = {
  networks: 'Allowed addresses',
  chap_user: 'CHAP name',
  mutual_chap_user: 'Mutual CHAP name',
  id: 'Identity',
  any: 'All other initiators',
  chap_demand: 'CHAP requirement',
  mutual_chap_demand: 'Mutual CHAP requirement',
  delivery: 'Destination',
  trust: 'Server authentication',
  min_severity: 'Minimum severity',
  gather: 'Batching interval',
  remind: 'Reminder interval',
  has_secret: 'Secret',
  password_set: 'Password',
  second_factor: 'Two-factor authentication',
  min_algorithm: 'Minimum CHAP algorithm',
  advertise: 'Advertised address',
};

/** Value as text for a conflict. */
function valueText(value: unknown): string {
  if (value === undefined || value === null || value === '' || (Array.isArray(value) && !value.length)) return 'none';
  if (Array.isArray(value)) return value.map(valueText).join(', ');
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Differing values, by path. */
function differences(was: unknown, is: unknown, path: string[] = []): { path: string[]; was: unknown; is: unknown }[] {
  const isObject = (one: unknown): one is ApiObject => typeof one === 'object' && one !== null && !Array.isArray(one);
  if (isObject(was) && isObject(is))
    return [...new Set([...Object.keys(was), ...Object.keys(is)])].flatMap((key) =>
      differences(was[key], is[key], [...path, key]),
    );
  return JSON.stringify(was ?? null) === JSON.stringify(is ?? null) ? [] : [{ path, was, is }];
}

/** Tag that never matches: the array refuses the change and names the author of the other one. */
const OUTDATED = '"outdated"';

export class EditGuard {
  private base: ApiObject;
  private latest: Promise<{ value: ApiObject; tag: string } | Problem>;

  /** Takes the displayed state of the object at an API path. */
  constructor(
    private readonly path: string,
    shown: object,
  ) {
    this.base = JSON.parse(JSON.stringify(this.guardedFields(shown as ApiObject))) as ApiObject;
    this.latest = this.fetch();
  }

  /**
   * Applies the change unless the object differs from the displayed state. After a conflict the current state counts
   * as displayed, so that the same change can be submitted again.
   */
  async change<T>(apply: (as: string) => Promise<T>, input = ''): Promise<T> {
    const now = await this.latest;
    if (now instanceof Problem) {
      this.latest = this.fetch();
      throw now;
    }
    try {
      return await apply(differences(this.base, this.guardedFields(now.value)).length ? OUTDATED : now.tag);
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 412) throw error;
      throw await this.conflict(error, input);
    }
  }

  /** Variant for API calls without a tag: compares the state before the call, which leaves a short race. */
  async changeUntagged<T>(apply: () => Promise<T>): Promise<T> {
    const { value } = await getWithTag<ApiObject>(this.path);
    if (differences(this.base, this.guardedFields(value)).length)
      throw await this.conflict(new Problem(412, 'BY-1207', 'the object changed after it was opened', ''), '');
    return apply();
  }

  private async conflict(problem: Problem, input: string): Promise<Problem> {
    const now = await this.fetch();
    if (now instanceof Problem) return now;
    const is = this.guardedFields(now.value);
    const replaced = this.base.id !== undefined && is.id !== this.base.id;
    const changes = differences(this.base, is).map(({ path, was, is: now }) => ({
      what: SETTING_LABELS[path.at(-1)!] ?? humanize(path.slice(path[0] === 'policy' ? 1 : 0).join(' ')),
      was: valueText(was),
      is: valueText(now),
    }));
    // A different object of the same name must never replace the displayed one.
    if (!replaced) {
      this.base = is;
      this.latest = Promise.resolve(now);
    }
    const conflict = new Problem(412, problem.code, problem.message, '');
    conflict.conflict = { changes, replaced, input };
    return conflict;
  }

  private fetch(): Promise<{ value: ApiObject; tag: string } | Problem> {
    return getWithTag<ApiObject>(this.path).catch((error: unknown) => {
      if (error instanceof Problem) return error;
      throw error;
    });
  }

  private guardedFields(thing: ApiObject): ApiObject {
    const keys = GUARDED_FIELDS[this.path.split('/')[1]!] ?? [];
    return Object.fromEntries(keys.filter((key) => key in thing).map((key) => [key, thing[key]]));
  }
}

/** EditGuard for fields on a page: the state is taken when editing begins and kept until the change is applied. */
export class FieldGuard {
  private guard: EditGuard | undefined;
  /** Takes the displayed state at the first edit; later edits keep it. */
  begin(path: string, shown: object | undefined): void {
    if (shown) this.guard ??= new EditGuard(path, shown);
  }
  /** Discards the state after the edits were discarded. */
  reset(): void {
    this.guard = undefined;
  }
  /** Applies the change; on success the state is discarded. */
  async change<T>(path: string, shown: object, apply: (as: string) => Promise<T>, input = ''): Promise<T> {
    this.begin(path, shown);
    const done = await this.guard!.change(apply, input);
    this.reset();
    return done;
  }
}

/** Change by a button: guarded by the state displayed at the click. */
export const guarded = <T>(path: string, shown: object, apply: (as: string) => Promise<T>): Promise<T> =>
  new EditGuard(path, shown).change(apply);
