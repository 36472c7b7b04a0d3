// One way to ask the daemon. Answers are `{"schema":1,"<noun>":…}`, refusals are problem documents (RFC 9457).

import type { SessionLoss } from './types';

const BASE = '/api/v1';

/** What another has changed meanwhile: both values of each setting, and whether it is another thing of the same name. */
export interface Conflict {
  changes: { what: string; was: string; is: string }[];
  other: boolean;
  yours: string;
}

/** A refusal: what is wrong, what would be right, and the number that stays the same in every version. */
export class Problem extends Error {
  /** Where it was refused because what was shown is not what is. */
  conflict: Conflict | undefined;
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
    readonly sessions: SessionLoss[] = [],
  ) {
    super(message);
  }
  /** In one sentence, as the command line says it. */
  get sentence(): string {
    return `${this.message}${this.hint ? `; ${this.hint}` : ''}${this.code ? ` (${this.code})` : ''}`;
  }
}

/** What is sent along with a change, so that nobody else's page can make one. */
let csrf: string | undefined;
let whenSignedOut: (why: Problem) => void = () => {};

export function setCsrf(token: string | undefined): void {
  csrf = token;
}
export function onSignedOut(then: (why: Problem) => void): void {
  whenSignedOut = then;
}

/** Whoever asks whether a change is made though sessions end or lose access. */
let confirmed: (problem: Problem) => Promise<boolean> = () => Promise.resolve(false);

export function onDisruption(then: (problem: Problem) => Promise<boolean>): void {
  confirmed = then;
}

export type Query = Record<string, string | number | boolean | undefined>;

function address(path: string, query?: Query): string {
  const asked = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== '');
  if (asked.length === 0) return BASE + path;
  return `${BASE}${path}?${asked.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join('&')}`;
}

type Document = Record<string, unknown>;
/** How a request is sent: `background` keeps no login alive, and `as` is the tag (If-Match) that what is changed must still have. */
interface How {
  body?: unknown;
  query?: Query;
  background?: boolean;
  as?: string;
}

async function ask(method: string, path: string, how: How = {}): Promise<Document> {
  return (await send(method, path, how)).document;
}

async function send(method: string, path: string, how: How): Promise<{ document: Document; tag: string }> {
  const { body, query, background, as } = how;
  const headers: Record<string, string> = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  // What a page asks by itself keeps no login alive.
  if (background) headers['blockyard-background'] = '1';
  if (as) headers['if-match'] = as;
  if (method !== 'GET' && csrf) headers['x-csrf-token'] = csrf;
  let answer: Response;
  try {
    answer = await fetch(address(path, query), {
      method,
      headers,
      credentials: 'same-origin',
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(
      0,
      'BY-1808',
      'the array does not respond',
      'check that the daemon runs and that this computer can reach it',
    );
  }
  if (answer.status === 204) return { document: {}, tag: '' };
  const text = await answer.text();
  let document: Document = {};
  try {
    document = JSON.parse(text);
  } catch {
    /* said below */
  }
  if (answer.ok) return { document, tag: answer.headers.get('etag') ?? '' };
  const {
    code = '',
    message,
    hint = '',
    sessions = [],
    confirm,
  } = document as { code?: string; message?: string; hint?: string; sessions?: SessionLoss[]; confirm?: string };
  const problem = new Problem(
    answer.status,
    code,
    message ?? `unexpected response: ${answer.status} ${answer.statusText}`,
    hint,
    sessions,
  );
  if (answer.status === 401 && !path.startsWith('/session')) whenSignedOut(problem);
  // Where something is lost to a logged-in host, the request says that this is wanted, in its body or, without one, in its query.
  if (!confirm || !sessions.length || !(await confirmed(problem))) throw problem;
  return send(
    method,
    path,
    body === undefined
      ? { ...how, query: { ...query, [confirm]: true } }
      : { ...how, body: { ...(body as object), [confirm]: true } },
  );
}

/** The one noun of the answer. */
function noun<T>(document: Record<string, unknown>): T {
  const key = Object.keys(document).find((key) => !['schema', 'total', 'next'].includes(key));
  return (key === undefined ? undefined : document[key]) as T;
}

export async function get<T>(path: string, query?: Query): Promise<T> {
  return noun<T>(await ask('GET', path, { query }));
}
/** The same, asked by the page itself and not by who looks at it. */
export async function poll<T>(path: string, query?: Query): Promise<T> {
  return noun<T>(await ask('GET', path, { query, background: true }));
}
/** A page of a list, and where the next one begins. */
export async function pollPage<T>(path: string, query: Query): Promise<{ items: T[]; total?: number; next?: string }> {
  const document = await ask('GET', path, { query, background: true });
  return {
    items: noun<T[]>(document),
    total: document.total as number | undefined,
    next: (document.next as string | null) ?? undefined,
  };
}
/** One thing with its tag, which the array compares when it is changed. */
export async function getWithTag<T>(path: string): Promise<{ value: T; tag: string }> {
  const { document, tag } = await send('GET', path, {});
  return { value: noun<T>(document), tag };
}
export async function post<T>(path: string, body: unknown = {}, as?: string): Promise<T> {
  return noun<T>(await ask('POST', path, { body, as }));
}
// What is changed was shown: its tag is never left out (`lib/seen`).
export async function patch<T>(path: string, body: unknown, as: string): Promise<T> {
  return noun<T>(await ask('PATCH', path, { body, as }));
}
export async function put<T>(path: string, body: unknown, as: string): Promise<T> {
  return noun<T>(await ask('PUT', path, { body, as }));
}
export async function remove(path: string, query?: Query, as?: string): Promise<unknown> {
  return ask('DELETE', path, { query, as });
}
/** All of the answer, for answers with more than a noun. */
export async function whole(path: string, query?: Query): Promise<Document> {
  return ask('GET', path, { query });
}

/** A name as a part of a path: `pool/volume` keeps its stroke. */
export function part(name: string): string {
  return name.split('/').map(encodeURIComponent).join('/');
}
