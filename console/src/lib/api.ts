// HTTP client of the daemon. Responses are `{"schema":1,"<noun>":…}`, errors are problem documents (RFC 9457).

import type { SessionLoss } from './types';

const BASE = '/api/v1';

/** Conflicting change: both values of each setting, and whether another object took the name. */
export interface Conflict {
  changes: { what: string; was: string; is: string }[];
  replaced: boolean;
  input: string;
}

/** API error: message, hint on the fix, and a code that is stable across versions. */
export class Problem extends Error {
  /** Set if the change was refused because the object differs from the displayed state. */
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
  /** One-line text in the format of the command line. */
  get sentence(): string {
    return `${this.message}${this.hint ? `; ${this.hint}` : ''}${this.code ? ` (${this.code})` : ''}`;
  }
}

/** CSRF token, sent with every change so that pages of other origins cannot make one. */
let csrf: string | undefined;
let signedOutHandler: (why: Problem) => void = () => {};

export function setCsrf(token: string | undefined): void {
  csrf = token;
}
export function onSignedOut(then: (why: Problem) => void): void {
  signedOutHandler = then;
}

/** Callback that confirms a change by which sessions end or lose access. */
let confirmDisruption: (problem: Problem) => Promise<boolean> = () => Promise.resolve(false);

export function onDisruption(then: (problem: Problem) => Promise<boolean>): void {
  confirmDisruption = then;
}

export type Query = Record<string, string | number | boolean | undefined>;

function address(path: string, query?: Query): string {
  const parameters = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== '');
  if (parameters.length === 0) return BASE + path;
  return `${BASE}${path}?${parameters.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join('&')}`;
}

type Document = Record<string, unknown>;
/** Request options. `background`: does not extend the login; `as`: tag of the object for If-Match. */
interface RequestOptions {
  body?: unknown;
  query?: Query;
  background?: boolean;
  as?: string;
}

async function request(method: string, path: string, options: RequestOptions = {}): Promise<Document> {
  return (await send(method, path, options)).document;
}

async function send(
  method: string,
  path: string,
  options: RequestOptions,
): Promise<{ document: Document; tag: string }> {
  const { body, query, background, as } = options;
  const headers: Record<string, string> = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  // Polling must not keep an idle login alive.
  if (background) headers['blockyard-background'] = '1';
  if (as) headers['if-match'] = as;
  if (method !== 'GET' && csrf) headers['x-csrf-token'] = csrf;
  let response: Response;
  try {
    response = await fetch(address(path, query), {
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
  if (response.status === 204) return { document: {}, tag: '' };
  const text = await response.text();
  let document: Document = {};
  try {
    document = JSON.parse(text);
  } catch {
    /* handled below by status */
  }
  if (response.ok) return { document, tag: response.headers.get('etag') ?? '' };
  const {
    code = '',
    message,
    hint = '',
    sessions = [],
    confirm,
  } = document as { code?: string; message?: string; hint?: string; sessions?: SessionLoss[]; confirm?: string };
  const problem = new Problem(
    response.status,
    code,
    message ?? `unexpected response: ${response.status} ${response.statusText}`,
    hint,
    sessions,
  );
  if (response.status === 401 && !path.startsWith('/session')) signedOutHandler(problem);
  // If logged-in hosts would lose access, the request is sent again with the confirmation field, in the body or,
  // without a body, in the query.
  if (!confirm || !sessions.length || !(await confirmDisruption(problem))) throw problem;
  return send(
    method,
    path,
    body === undefined
      ? { ...options, query: { ...query, [confirm]: true } }
      : { ...options, body: { ...(body as object), [confirm]: true } },
  );
}

/** The one payload field of a response. */
function payload<T>(document: Record<string, unknown>): T {
  const key = Object.keys(document).find((key) => !['schema', 'total', 'next'].includes(key));
  return (key === undefined ? undefined : document[key]) as T;
}

export async function get<T>(path: string, query?: Query): Promise<T> {
  return payload<T>(await request('GET', path, { query }));
}
/** GET that does not extend the login. */
export async function poll<T>(path: string, query?: Query): Promise<T> {
  return payload<T>(await request('GET', path, { query, background: true }));
}
/** One page of a list, with the cursor of the next. */
export async function pollPage<T>(path: string, query: Query): Promise<{ items: T[]; total?: number; next?: string }> {
  const document = await request('GET', path, { query, background: true });
  return {
    items: payload<T[]>(document),
    total: document.total as number | undefined,
    next: (document.next as string | null) ?? undefined,
  };
}
/** Object with its tag, which the array compares when the object is changed. */
export async function getWithTag<T>(path: string): Promise<{ value: T; tag: string }> {
  const { document, tag } = await send('GET', path, {});
  return { value: payload<T>(document), tag };
}
export async function post<T>(path: string, body: unknown = {}, as?: string): Promise<T> {
  return payload<T>(await request('POST', path, { body, as }));
}
// Changes always carry a tag (see lib/guard).
export async function patch<T>(path: string, body: unknown, as: string): Promise<T> {
  return payload<T>(await request('PATCH', path, { body, as }));
}
export async function put<T>(path: string, body: unknown, as: string): Promise<T> {
  return payload<T>(await request('PUT', path, { body, as }));
}
export async function remove(path: string, query?: Query, as?: string): Promise<unknown> {
  return request('DELETE', path, { query, as });
}

/** Encodes a name for a path; the slash of `pool/volume` is kept. */
export function part(name: string): string {
  return name.split('/').map(encodeURIComponent).join('/');
}
