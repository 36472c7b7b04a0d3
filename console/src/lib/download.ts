// Files that a browser keeps.

import { Problem } from './api';

/** The browser keeps it as a file of this name. */
export function saveAs(parts: BlobPart[], name: string, type: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** What this row says, as it comes; the caller hears how many bytes there are. It ends by itself, or with `signal`: what has come by then is the answer. */
export async function download(
  path: string,
  query: Record<string, string>,
  heard: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<BlobPart[]> {
  const asked = new URLSearchParams(query).toString();
  const parts: BlobPart[] = [];
  try {
    const answer = await fetch(`/api/v1${path}${asked ? `?${asked}` : ''}`, { credentials: 'same-origin', signal });
    if (!answer.ok || !answer.body) {
      const {
        code = '',
        message,
        hint = '',
      } = (await answer.json().catch(() => ({}))) as { code?: string; message?: string; hint?: string };
      throw new Problem(
        answer.status,
        code,
        message ?? `unexpected response: ${answer.status} ${answer.statusText}`,
        hint,
      );
    }
    const reader = answer.body.getReader();
    let bytes = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value as Uint8Array<ArrayBuffer>);
      heard((bytes += value.length));
    }
  } catch (error) {
    if (error instanceof Problem) throw error;
    if (!signal?.aborted)
      throw new Problem(
        0,
        'BY-1808',
        'connection to the array lost',
        'check that the daemon runs and that this computer can reach it',
      );
  }
  return parts;
}
