// Changes that end sessions or revoke access: the array refuses them with the list of sessions, and they are sent
// again after confirmation.

import { onDisruption, type Problem } from './api';

class Disruption {
  /** The error that waits for confirmation. */
  problem = $state.raw<Problem | undefined>();
  private resolve: (confirmed: boolean) => void = () => {};

  ask(problem: Problem): Promise<boolean> {
    this.settle(false);
    this.problem = problem;
    return new Promise((resolve) => {
      this.resolve = resolve;
    });
  }

  settle(confirmed: boolean): void {
    this.problem = undefined;
    this.resolve(confirmed);
  }
}

export const disruption = new Disruption();
onDisruption((problem) => disruption.ask(problem));
