// Who we are to the daemon. Over its Unix socket nobody has to say; over HTTPS somebody signs in.

import { get, onSignedOut, post, Problem, remove, setCsrf } from './api';
import { route } from './route.svelte';
import type { Me, Role } from './types';


const ROLES: Role[] = ['viewer', 'operator', 'admin'];

class SessionState {
  /** `asking` at first; `local` where no session is needed; `welcome` where a one-time link was opened. */
  state = $state<'asking' | 'local' | 'in' | 'out' | 'away' | 'welcome'>('asking');
  me = $state.raw<Me | undefined>();
  problem = $state.raw<Problem | undefined>();
  /** What stands behind the `#` of a one-time link. */
  link = '';

  async begin(): Promise<void> {
    onSignedOut(() => { this.state = 'out'; });
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
      else { this.state = 'away'; this.problem = error; setTimeout(() => void this.begin(), 3000); }
    }
  }

  /** Somebody is there: a login does not end while one reads, though pages ask by themselves only. */
  async touch(): Promise<void> {
    if (this.state !== 'in' || Date.now() - this.touched < 60_000) return;
    this.touched = Date.now();
    try { this.enter(await get<Me>('/session')); } catch (error) { if (!(error instanceof Problem)) throw error; if (error.status === 401) this.state = 'out'; }
  }
  private touched = Date.now();

  async signIn(name: string, password: string, code: string): Promise<void> {
    this.enter(await post<Me>('/session', { name, password, ...(code ? { code } : {}) }));
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
    this.state = me.how === 'session' ? 'in' : 'local';
  }
}

export const session = new SessionState();
