// Where we are is in the address: `#/volumes/tank/vm1?sort=size`. Going there again shows the same.

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

  /** The parts of the path, readable: `/volumes/tank/vm1` is `volumes`, `tank`, `vm1`. */
  get parts(): string[] {
    return this.path.split('/').filter(Boolean).map(decodeURIComponent);
  }

  /** What the address says of `key`. */
  param(key: string): string {
    return this.query.get(key) ?? '';
  }

  /** The address says `value` of `key` from now on; nothing of it when empty. No new entry in the history. */
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

  /** The first page, in place of what the address says. */
  home(): void {
    history.replaceState(null, '', '/');
    this.read();
  }
}

export const route = new Route();

/** The address of a thing. */
export const to = {
  volume: (name: string) => `#/volumes/${name.split('/').map(encodeURIComponent).join('/')}`,
  pool: (name: string) => `#/pools/${encodeURIComponent(name)}`,
  disk: (name: string) => `#/disks/${encodeURIComponent(name)}`,
  host: (name: string) => `#/hosts/${encodeURIComponent(name)}`,
  session: (id: number) => `#/sessions/${id}`,
  replace: (disk: string) => `#/replace/${encodeURIComponent(disk)}`,
};
