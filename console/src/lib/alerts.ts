// Order, filter and scope of alerts.

import type { Alert } from './types';

const ORDER: Alert['severity'][] = ['critical', 'warning', 'info'];

/** Sorts by severity, then newest first. */
export const bySeverity = (list: Alert[]): Alert[] =>
  [...list].sort(
    (a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity) || Date.parse(b.since) - Date.parse(a.since),
  );
/** Alerts that receivers are notified of. */
export const unsilenced = (list: Alert[]): Alert[] => list.filter((alert) => !alert.silenced);
export const worst = (list: Alert[]): Alert['severity'] =>
  ORDER.find((severity) => list.some((alert) => alert.severity === severity)) ?? 'info';
/** Object of the alert, in the notation of silences. */
export const subjectOf = (alert: Alert): string => `${alert.subject.kind} ${alert.subject.name}`;
/** Possible scopes of a silence: the object if silences support its kind, and the code. */
export function silenceable(alert: Alert): { what: string; meaning: string }[] {
  const kinds = ['disk', 'pool', 'volume', 'host', 'portal', 'node', 'receiver'];
  const code = { what: alert.code, meaning: 'All alerts with this code' };
  return kinds.includes(alert.subject.kind)
    ? [{ what: subjectOf(alert), meaning: 'All alerts of this object' }, code]
    : [code];
}
