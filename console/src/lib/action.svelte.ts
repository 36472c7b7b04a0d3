// One change that a form or a button asks for: under way, refused, or done.

import { Problem } from './api';

export class Action {
  busy = $state(false);
  problem = $state.raw<Problem | undefined>();

  /** True when it was done. A refusal is kept to be shown; nothing is tried again. */
  async run(change: () => Promise<unknown>): Promise<boolean> {
    if (this.busy) return false;
    this.busy = true;
    this.problem = undefined;
    try {
      await change();
      return true;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.problem = error;
      return false;
    } finally {
      this.busy = false;
    }
  }

  clear(): void {
    this.problem = undefined;
  }

  /** The refusal where it is about this field: one of these numbers, or a message that names what is in it. */
  about(...codes: number[]): string | undefined {
    const { problem } = this;
    return problem && codes.some((code) => problem.code === `BY-${code}`)
      ? `${problem.message}; ${problem.hint}`
      : undefined;
  }

  /** The refusal where it is about none of the fields that show theirs themselves. */
  rest(...codes: number[]): Problem | undefined {
    return this.about(...codes) ? undefined : this.problem;
  }
}
