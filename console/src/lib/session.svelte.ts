// Login state of the console. The Unix socket needs no login; HTTPS requires one.

import { get, onSignedOut, post, Problem, remove, setCsrf } from './api';
import { clock, duration } from './format';
import { route } from './route.svelte';
import type { Me, Role } from './types';

const ROLES: Role[] = ['viewer', 'operator', 'admin'];

class SessionState {
  /**
   * `loading`: not known yet; `local`: no login needed; `unreachable`: no response; `welcome`: opened by a one-time
   * link.
   */
  state = $state<'loading' | 'local' | 'in' | 'out' | 'unreachable' | 'welcome'>('loading');
  me = $state.raw<Me | undefined>();
  problem = $state.raw<Problem | undefined>();
  /** Reason why the login ended while pages were open. The pages keep their input below the sign-in dialog. */
  expired = $state<string | undefined>();
  /** Secret of the one-time link, from the fragment of its address. */
  link = '';

  async start(): Promise<void> {
    onSignedOut(() => this.expire());
    if (location.pathname === '/welcome' && /^#[0-9a-f]{16,}$/.test(location.hash)) {
      this.link = location.hash.slice(1);
      route.home(); // keeps the secret out of the browser history
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

  /** Extends the login on user activity, at most once a minute: background polling does not extend it. */
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

  /** Handles a login that was ended by the array; the input on the pages is kept. */
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
    // Input of one user must not be visible to, or be submitted by, another.
    if (before !== undefined && before !== this.me?.name) location.reload();
    this.lastActivity = Date.now();
  }

  /** Redeems the one-time link: sets the password of its user and signs in. */
  async redeemLink(name: string, password: string): Promise<void> {
    this.enter(await post<Me>('/session/link', { token: this.link, password, ...(name ? { name } : {}) }));
  }

  async signOut(): Promise<void> {
    await remove('/session');
    setCsrf(undefined);
    this.state = 'out';
    this.me = undefined;
  }

  /** True if the role of the user is at least `least`. */
  hasRole(least: Role): boolean {
    return !this.me || ROLES.indexOf(this.me.role) >= ROLES.indexOf(least);
  }

  private enter(me: Me): void {
    setCsrf(me.csrf ?? undefined);
    this.me = me;
    this.expired = undefined;
    this.state = me.auth_method === 'session' ? 'in' : 'local';
  }
}

export const session = new SessionState();
