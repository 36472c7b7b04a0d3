// Reasons of denied logins as text.

import type { Host, DeniedLogin } from './types';

/** Denied logins that are still unresolved: omits initiators that belong to a host by now. */
export function unresolvedDenials(list: DeniedLogin[], hosts: Host[]): DeniedLogin[] {
  const known = new Set(hosts.flatMap((host) => host.initiators));
  return list.filter(
    (login) => login.why.kind !== 'unknown_initiator' || !login.initiator || !known.has(login.initiator.toLowerCase()),
  );
}

export function denialReason(login: DeniedLogin): string {
  const { why, target } = login;
  switch (why.kind) {
    case 'unknown_initiator':
      return 'unknown initiator';
    case 'wrong_address':
      return `address ${login.address} not allowed for host ${why.host}`;
    case 'not_proven':
      return `authentication as host ${why.host} failed: ${why.how}`;
    case 'discovery_not_proven':
      return `discovery authentication failed: ${why.how}`;
    case 'held_back':
      return `logins throttled: too many failed authentications as host ${why.host} or from this address`;
    case 'unknown_target':
      return `unknown target ${target ?? '(discovery)'}`;
    case 'nothing_shown':
      return `no volume presented to host ${why.host} through target ${target ?? '(discovery)'}`;
    case 'protocol':
      return why.key ? `protocol error: ${why.key}: ${why.rule}` : `protocol error: ${why.rule}`;
    case 'no_session':
      return 'session to join does not exist';
    case 'other_group':
      return 'session to join belongs to another portal group';
    case 'no_portal':
      return `portal ${why.portal} accepts no sessions and no other portal of its group is reachable`;
    case 'full':
      return 'session limit reached';
    default:
      return login.status;
  }
}
