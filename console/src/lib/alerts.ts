// What is wrong now, and what nobody is told of for a while.

import type { Alert } from './types';

const ORDER: Alert['severity'][] = ['critical', 'warning', 'info'];

/** The worst first; of these the latest. */
export const bySeverity = (list: Alert[]): Alert[] =>
  [...list].sort(
    (a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity) || Date.parse(b.since) - Date.parse(a.since),
  );
/** Those that people are told of. */
export const unsilenced = (list: Alert[]): Alert[] => list.filter((alert) => !alert.silenced);
export const worst = (list: Alert[]): Alert['severity'] =>
  ORDER.find((severity) => list.some((alert) => alert.severity === severity)) ?? 'info';
/** What it is about, as a silence names it. */
export const subjectOf = (alert: Alert): string => `${alert.subject.kind} ${alert.subject.name}`;
/** What an alert can be silenced as: its subject where a silence may name it, and its code. */
export function silenceable(alert: Alert): { what: string; meaning: string }[] {
  const kinds = ['disk', 'pool', 'volume', 'host', 'portal', 'node', 'receiver'];
  const code = { what: alert.code, meaning: 'All alerts with this code' };
  return kinds.includes(alert.subject.kind)
    ? [{ what: subjectOf(alert), meaning: 'All alerts of this object' }, code]
    : [code];
}
