// What was shown of one thing when its field or dialog was opened. A change carries the tag of that (If-Match), so that it is refused
// where somebody has changed the thing in between, or another thing has its name; the refusal shows both values.

import { Problem, getWithTag } from './api';
import { humanize } from './format';

type Thing = Record<string, unknown>;

/** What an operator sets of each noun, and which one it is: what its tag is made of. The rest moves by itself. */
const SET: Record<string, readonly string[]> = {
  disks: ['path', 'spare'],
  pools: ['id', 'policy'],
  volumes: ['id', 'size', 'policy'],
  snapshots: ['id', 'lock'],
  hosts: ['any', 'initiators', 'networks', 'chap_user', 'chap_demand', 'mutual_chap_user', 'mutual_chap_demand'],
  groups: ['hosts'],
  targets: ['iqn'],
  portals: ['role', 'tag', 'weight', 'drained', 'advertise'],
  'portal-groups': ['access', 'preferred'],
  auth: ['weakest', 'discovery'],
  isns: ['server'],
  receivers: ['way', 'trust', 'least', 'gather', 'remind', 'has_secret'],
  users: ['role', 'second_factor', 'password_set'],
};
/** How a setting is called where it is shown. */
const SETTING_LABELS: Record<string, string> = {
  networks: 'Allowed addresses',
  chap_user: 'CHAP name',
  mutual_chap_user: 'Mutual CHAP name',
  id: 'Identity',
  any: 'All other initiators',
  chap_demand: 'CHAP requirement',
  mutual_chap_demand: 'Mutual CHAP requirement',
  way: 'Destination',
  trust: 'Server authentication',
  least: 'Minimum severity',
  gather: 'Batching interval',
  remind: 'Reminder interval',
  has_secret: 'Secret',
  password_set: 'Password',
  second_factor: 'Two-factor authentication',
  weakest: 'Minimum CHAP algorithm',
  advertise: 'Advertised address',
};

/** A value as people read it. */
function said(value: unknown): string {
  if (value === undefined || value === null || value === '' || (Array.isArray(value) && !value.length)) return 'none';
  if (Array.isArray(value)) return value.map(said).join(', ');
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Each value that differs, by its path. */
function differences(was: unknown, is: unknown, path: string[] = []): { path: string[]; was: unknown; is: unknown }[] {
  const isObject = (one: unknown): one is Thing => typeof one === 'object' && one !== null && !Array.isArray(one);
  if (isObject(was) && isObject(is))
    return [...new Set([...Object.keys(was), ...Object.keys(is)])].flatMap((key) =>
      differences(was[key], is[key], [...path, key]),
    );
  return JSON.stringify(was ?? null) === JSON.stringify(is ?? null) ? [] : [{ path, was, is }];
}

/** A tag that nothing has: the array then refuses the change, and says who made the other one. */
const OUTDATED = '"outdated"';

export class EditGuard {
  private base: Thing;
  private now: Promise<{ value: Thing; tag: string } | Problem>;

  /** What is shown at this moment, of what is at this path of the API. */
  constructor(
    private readonly path: string,
    shown: object,
  ) {
    this.base = JSON.parse(JSON.stringify(this.set(shown as Thing))) as Thing;
    this.now = this.look();
  }

  /** Makes the change, unless what was shown is not what is. After a refusal what is now has been shown: the same change can be asked for again. */
  async change<T>(make: (as: string) => Promise<T>, yours = ''): Promise<T> {
    const now = await this.now;
    if (now instanceof Problem) {
      this.now = this.look();
      throw now;
    }
    try {
      return await make(differences(this.base, this.set(now.value)).length ? OUTDATED : now.tag);
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 412) throw error;
      throw await this.conflict(error, yours);
    }
  }

  /** The same for a change that takes no tag: it is only looked whether the thing is still what was shown. */
  async still<T>(make: () => Promise<T>): Promise<T> {
    const { value } = await getWithTag<Thing>(this.path);
    if (differences(this.base, this.set(value)).length)
      throw await this.conflict(new Problem(412, 'BY-1207', 'the object changed after it was opened', ''), '');
    return make();
  }

  private async conflict(problem: Problem, yours: string): Promise<Problem> {
    const now = await this.look();
    if (now instanceof Problem) return now;
    const is = this.set(now.value);
    const other = this.base.id !== undefined && is.id !== this.base.id;
    const changes = differences(this.base, is).map(({ path, was, is: now }) => ({
      what: SETTING_LABELS[path.at(-1)!] ?? humanize(path.slice(path[0] === 'policy' ? 1 : 0).join(' ')),
      was: said(was),
      is: said(now),
    }));
    // Another thing of the same name is never taken for the one that was shown.
    if (!other) {
      this.base = is;
      this.now = Promise.resolve(now);
    }
    const conflict = new Problem(412, problem.code, problem.message, '');
    conflict.conflict = { changes, other, yours };
    return conflict;
  }

  private look(): Promise<{ value: Thing; tag: string } | Problem> {
    return getWithTag<Thing>(this.path).catch((error: unknown) => {
      if (error instanceof Problem) return error;
      throw error;
    });
  }

  private set(thing: Thing): Thing {
    const keys = SET[this.path.split('/')[1]!] ?? [];
    return Object.fromEntries(keys.filter((key) => key in thing).map((key) => [key, thing[key]]));
  }
}

/** What was shown of the thing whose fields are on a page: remembered when the first of them is touched, until its change is made. */
export class FieldGuard {
  private guard: EditGuard | undefined;
  /** A field is filled in; what is shown then is what the change is judged by. */
  begin(path: string, shown: object | undefined): void {
    if (shown) this.guard ??= new EditGuard(path, shown);
  }
  /** Nothing is filled in any more. */
  reset(): void {
    this.guard = undefined;
  }
  /** Makes the change, and forgets what was shown once it is made. */
  async change<T>(path: string, shown: object, make: (as: string) => Promise<T>, yours = ''): Promise<T> {
    this.begin(path, shown);
    const done = await this.guard!.change(make, yours);
    this.reset();
    return done;
  }
}

/** A change by one press: what is shown is what it is judged by. */
export const guarded = <T>(path: string, shown: object, make: (as: string) => Promise<T>): Promise<T> =>
  new EditGuard(path, shown).change(make);
