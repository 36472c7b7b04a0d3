// Who we are to the daemon. Over its Unix socket nobody has to say; over HTTPS somebody signs in.

import { get, onSignedOut, post, Problem, remove, setCsrf } from './api';
import { clock, duration } from './format';
import { route } from './route.svelte';
import type { Me, Role } from './types';

const ROLES: Role[] = ['viewer', 'operator', 'admin'];

class SessionState {
  /** `asking` at first; `local` where no session is needed; `welcome` where a one-time link was opened. */
  state = $state<'loading' | 'local' | 'in' | 'out' | 'unreachable' | 'welcome'>('loading');
  me = $state.raw<Me | undefined>();
  problem = $state.raw<Problem | undefined>();
  /** Why the login ended while the console was open. The pages stay as they are below the form that asks for another one. */
  expired = $state<string | undefined>();
  /** What stands behind the `#` of a one-time link. */
  link = '';

  async start(): Promise<void> {
    onSignedOut(() => this.expire());
    if (location.pathname === '/welcome' && /^#[0-9a-f]{16,}$/.test(location.hash)) {
      this.link = location.hash.slice(1);
      route.home(); // so that it stays in no history
      this.state = 'welcome';
      return;
    }
    try {
      this.enter(await get<Me>('/session'));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status === 404) this.state = 'local';
      else if (error.status === 401 || error.status === 403) this.state = 'out';
      else {
        this.state = 'unreachable';
        this.problem = error;
        setTimeout(() => void this.start(), 3000);
      }
    }
  }

  /** Somebody is there: a login does not end while one reads, though pages ask by themselves only. */
  async keepAlive(): Promise<void> {
    if (this.state !== 'in' || Date.now() - this.lastActivity < 60_000) return;
    if (this.expired !== undefined) return;
    const before = this.lastActivity;
    this.lastActivity = Date.now();
    try {
      this.enter(await get<Me>('/session'));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status === 401) {
        this.lastActivity = before;
        this.expire();
      }
    }
  }
  private lastActivity = Date.now();

  /** The login is over, and nobody has ended it here. What is filled in stays. */
  private expire(): void {
    if (this.state !== 'in' || !this.me) {
      if (this.state !== 'local') this.state = 'out';
      return;
    }
    if (this.expired !== undefined) return;
    const { idle_seconds: idle, until, name } = this.me;
    if (until && Date.now() >= Date.parse(until)) this.expired = `The login of ${name} expired at ${clock(until)}.`;
    else if (idle !== null && Date.now() - this.lastActivity >= idle * 1000 - 2000)
      this.expired = `${name} was signed out after ${duration(idle)} without activity.`;
    else
      this.expired = `The login of ${name} was ended by an administrator, a password change or a restart of the array.`;
  }

  async signIn(name: string, password: string, code: string): Promise<void> {
    const before = this.expired === undefined ? undefined : this.me?.name;
    this.enter(await post<Me>('/session', { name, password, ...(code ? { code } : {}) }));
    // What one user has filled in is not another's to see or to send.
    if (before !== undefined && before !== this.me?.name) location.reload();
    this.lastActivity = Date.now();
  }

  /** The one-time link is used: its user has this password, and is signed in. */
  async useLink(name: string, password: string): Promise<void> {
    this.enter(await post<Me>('/session/link', { token: this.link, password, ...(name ? { name } : {}) }));
  }

  async signOut(): Promise<void> {
    await remove('/session');
    setCsrf(undefined);
    this.state = 'out';
    this.me = undefined;
  }

  /** True when this role is enough for it. */
  may(least: Role): boolean {
    return !this.me || ROLES.indexOf(this.me.role) >= ROLES.indexOf(least);
  }

  private enter(me: Me): void {
    setCsrf(me.csrf ?? undefined);
    this.me = me;
    this.expired = undefined;
    this.state = me.how === 'session' ? 'in' : 'local';
  }
}

export const session = new SessionState();
