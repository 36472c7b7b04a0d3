// State of one change requested by a form or button: running, failed or finished.

import { Problem } from './api';

export class Action {
  busy = $state(false);
  problem = $state.raw<Problem | undefined>();

  /** Runs the change; true if it succeeded. An error is kept for display; nothing is retried. */
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

  /** Error text if the error code is one of `codes`: the caller displays it beside the field. */
  about(...codes: number[]): string | undefined {
    const { problem } = this;
    return problem && codes.some((code) => problem.code === `BY-${code}`)
      ? `${problem.message}; ${problem.hint}`
      : undefined;
  }

  /** The error unless `about(...codes)` displays it beside a field. */
  rest(...codes: number[]): Problem | undefined {
    return this.about(...codes) ? undefined : this.problem;
  }
}
