// Reasons of denied logins as text.

import type { Host, DeniedLogin } from './types';

/** Denied logins that are still unresolved: omits initiators that belong to a host by now. */
export function unresolvedDenials(list: DeniedLogin[], hosts: Host[]): DeniedLogin[] {
  const known = new Set(hosts.flatMap((host) => host.initiators));
  return list.filter(
    (login) =>
      login.reason.kind !== 'unknown_initiator' || !login.initiator || !known.has(login.initiator.toLowerCase()),
  );
}

export function denialReason(login: DeniedLogin): string {
  const { reason, target } = login;
  switch (reason.kind) {
    case 'unknown_initiator':
      return 'unknown initiator';
    case 'wrong_address':
      return `address ${login.address} not allowed for host ${reason.host}`;
    case 'authentication_failed':
      return `authentication as host ${reason.host} failed: ${reason.error}`;
    case 'discovery_authentication_failed':
      return `discovery authentication failed: ${reason.error}`;
    case 'throttled':
      return `logins throttled: too many failed authentications as host ${reason.host} or from this address`;
    case 'unknown_target':
      return `unknown target ${target ?? '(discovery)'}`;
    case 'no_mapping':
      return `no volume presented to host ${reason.host} through target ${target ?? '(discovery)'}`;
    case 'protocol':
      return reason.key ? `protocol error: ${reason.key}: ${reason.rule}` : `protocol error: ${reason.rule}`;
    case 'no_session':
      return 'session to join does not exist';
    case 'other_group':
      return 'session to join belongs to another portal group';
    case 'no_portal':
      return `portal ${reason.portal} accepts no sessions and no other portal of its group is reachable`;
    case 'full':
      return 'session limit reached';
    default:
      return login.status;
  }
}
