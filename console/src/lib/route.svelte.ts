// Client-side router. The address holds page, search and sort order, such as `#/volumes/tank/vm1?sort=size`.

class Route {
  path = $state('/');
  query = $state.raw(new URLSearchParams());

  constructor() {
    addEventListener('hashchange', () => this.read());
    this.read();
  }

  private read(): void {
    const text = location.hash.replace(/^#/, '') || '/';
    const at = text.indexOf('?');
    this.path = at < 0 ? text : text.slice(0, at);
    this.query = new URLSearchParams(at < 0 ? '' : text.slice(at + 1));
  }

  /** Decoded path segments: `/volumes/tank/vm1` is `volumes`, `tank`, `vm1`. */
  get parts(): string[] {
    return this.path.split('/').filter(Boolean).map(decodeURIComponent);
  }

  /** Query parameter, empty if absent. */
  param(key: string): string {
    return this.query.get(key) ?? '';
  }

  /** Sets a query parameter, or removes it if empty, without a new history entry. */
  setParam(key: string, value: string): void {
    const query = new URLSearchParams(this.query);
    if (value === '') query.delete(key);
    else query.set(key, value);
    const text = query.toString();
    history.replaceState(null, '', `#${this.path}${text ? `?${text}` : ''}`);
    this.query = query;
  }

  go(path: string): void {
    location.hash = path;
  }

  /** Replaces the address by that of the dashboard. */
  home(): void {
    history.replaceState(null, '', '/');
    this.read();
  }
}

export const route = new Route();

/** Addresses of objects. */
export const to = {
  volume: (name: string) => `#/volumes/${name.split('/').map(encodeURIComponent).join('/')}`,
  pool: (name: string) => `#/pools/${encodeURIComponent(name)}`,
  disk: (name: string) => `#/disks/${encodeURIComponent(name)}`,
  host: (name: string) => `#/hosts/${encodeURIComponent(name)}`,
  session: (id: number) => `#/sessions/${id}`,
  replace: (disk: string) => `#/replace/${encodeURIComponent(disk)}`,
};
