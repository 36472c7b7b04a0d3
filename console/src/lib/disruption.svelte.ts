// Changes that would take something from a logged-in host: refused with the sessions, and made when that is confirmed.

import { onDisruption, type Problem } from './api';

class Disruption {
  /** The refusal that waits for an answer. */
  problem = $state.raw<Problem | undefined>();
  private answer: (confirmed: boolean) => void = () => {};

  ask(problem: Problem): Promise<boolean> {
    this.settle(false);
    this.problem = problem;
    return new Promise((answer) => {
      this.answer = answer;
    });
  }

  settle(confirmed: boolean): void {
    this.problem = undefined;
    this.answer(confirmed);
  }
}

export const disruption = new Disruption();
onDisruption((problem) => disruption.ask(problem));
