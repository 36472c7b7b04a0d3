// Formats quantities: sizes in binary units as in the command line, rates in decimal units as usual in networking.

const BINARY: [string, number][] = [
  ['EiB', 2 ** 60],
  ['PiB', 2 ** 50],
  ['TiB', 2 ** 40],
  ['GiB', 2 ** 30],
  ['MiB', 2 ** 20],
  ['KiB', 2 ** 10],
];
const DECIMAL: [string, number][] = [
  ['EB', 1e18],
  ['PB', 1e15],
  ['TB', 1e12],
  ['GB', 1e9],
  ['MB', 1e6],
  ['kB', 1e3],
];

function trimmed(value: number, places: number): string {
  return value.toFixed(places).replace(/\.?0+$/, (zeros) => (zeros.startsWith('.') ? '' : zeros));
}

function scaled(bytes: number, units: [string, number][], places: number): string {
  const unit = units.find(([, size]) => bytes >= size);
  return unit ? `${trimmed(bytes / unit[1], places)} ${unit[0]}` : `${Math.round(bytes)} B`;
}

/** `1.5 TiB`. */
export const iec = (bytes: number): string => scaled(bytes, BINARY, 2);
/** `107.4 GB`, as in the data sheets of disks. */
export const decimal = (bytes: number): string => scaled(bytes, DECIMAL, 1);
/** `100 GiB (107.4 GB)`. */
export const size = (bytes: number): string => (bytes < 1000 ? `${bytes} B` : `${iec(bytes)} (${decimal(bytes)})`);
/** Shortest exact notation: `64KiB`, `1000B`. */
export function exact(bytes: number): string {
  const unit = BINARY.find(([, size]) => bytes >= size && bytes % size === 0);
  return unit ? `${bytes / unit[1]}${unit[0]}` : bytes === 0 ? '0' : `${bytes}B`;
}

/**
 * Parses `100GiB`, `1.5T` or `100GB` to bytes; undefined if invalid. A number without a unit is invalid except 0, as
 * in the array.
 */
export function parseSize(text: string): number | undefined {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*$/.exec(text);
  if (!match) return undefined;
  const [, number, unit] = match as unknown as [string, string, string];
  const wanted = unit.toLowerCase();
  if (wanted === 'b' || (wanted === '' && number === '0')) return Number(number);
  const found =
    BINARY.find(([name]) => name.toLowerCase() === wanted || name[0]!.toLowerCase() === wanted) ??
    DECIMAL.find(([name]) => name.toLowerCase() === wanted);
  return found ? Math.round(Number(number) * found[1]) : undefined;
}

const grouped = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 0 });
/** `12,345`. */
export const count = (n: number): string => grouped.format(n);
/** Compact number: `1,234`, `45.6 k`, `1.2 M`. */
export function compactNumber(n: number): string {
  if (n < 10 && n > 0 && !Number.isInteger(n)) return n.toFixed(1);
  if (n < 10_000) return count(n);
  return n < 1e6 ? `${trimmed(n / 1e3, n < 1e5 ? 1 : 0)} k` : `${trimmed(n / 1e6, 1)} M`;
}
/** `67.1 MB/s`. */
export const rate = (bytesPerSecond: number): string =>
  bytesPerSecond < 1 ? '0 B/s' : `${scaled(bytesPerSecond, DECIMAL, 1)}/s`;
/** `319 µs`, `1.15 ms`, `2.4 s`. */
export function time(us: number): string {
  if (us < 1000) return `${Math.round(us)} µs`;
  return us < 1e6 ? `${trimmed(us / 1e3, us < 1e4 ? 2 : 1)} ms` : `${trimmed(us / 1e6, 2)} s`;
}
/** `2 h 5 min`. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 && s < 600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h${s % 3600 >= 60 ? ` ${Math.floor((s % 3600) / 60)} min` : ''}`;
  return `${Math.floor(s / 86_400)} d${s % 86_400 >= 3600 ? ` ${Math.floor((s % 86_400) / 3600)} h` : ''}`;
}
export const percent = (part: number, whole: number): number =>
  whole > 0 ? Math.min(100, Math.floor((part * 100) / whole)) : 0;
/** UTC offset at a time: `UTC+1` or `UTC+5:30`. */
export function offset(when = new Date()): string {
  const minutes = -when.getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return minutes === 0
    ? 'UTC'
    : `UTC${minutes < 0 ? '−' : '+'}${hours}${rest ? `:${String(rest).padStart(2, '0')}` : ''}`;
}
/** Time zone of the browser: `Europe/Berlin (UTC+1)`. */
export function zone(when = new Date()): string {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return name === 'UTC' ? 'UTC' : `${name} (${offset(when)})`;
}
/**
 * Converts a window such as `22:00-06:00` from UTC to local time (`by` 1) or back (`by` -1). Other text is returned
 * unchanged.
 */
export function shiftWindow(hours: string, by: 1 | -1, when = new Date()): string {
  const moved = (_: string, h: string, m: string) => {
    const minutes = (((Number(h) * 60 + Number(m) - by * when.getTimezoneOffset()) % 1440) + 1440) % 1440;
    return `${String(Math.floor(minutes / 60)).padStart(2, '0')}:${String(minutes % 60).padStart(2, '0')}`;
  };
  return /^\s*([01]?\d|2[0-3]):[0-5]\d-([01]?\d|2[0-3]):[0-5]\d\s*$/.test(hours)
    ? hours.trim().replace(/(\d+):(\d+)/g, moved)
    : hours;
}
/** `14:05:31 UTC+1`, for places without a column header that names the zone. */
export const clock = (text: string, now = new Date()): string => `${localTime(text, now)} ${offset(new Date(text))}`;
/** `14:05:31`, with the day unless it is today, and the year unless it is this year. */
export function localTime(text: string, now = new Date()): string {
  const when = new Date(text);
  const hours = when.toLocaleTimeString('en-GB');
  return when.toDateString() === now.toDateString()
    ? hours
    : `${when.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', ...(when.getFullYear() === now.getFullYear() ? {} : { year: 'numeric' }) })} ${hours}`;
}
/** `3 min ago`. */
export const ago = (text: string, now = Date.now()): string => {
  const seconds = (now - Date.parse(text)) / 1000;
  return seconds < 5 ? 'just now' : `${duration(seconds)} ago`;
};
export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;
/** State name for display: `in_use` becomes `in use`. */
export const humanize = (state: string): string => state.replaceAll('_', ' ');
/** Sort key that orders `v2` before `v10`. For 10,000 names, comparing keys is ten times faster than a collator. */
export const naturalSortKey = (text: string): string =>
  text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, '0'));
