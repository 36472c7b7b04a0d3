// Downloads of files.

import { Problem } from './api';

/** Saves the parts as a file through the browser. */
export function saveAs(parts: BlobPart[], name: string, type: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/**
 * Receives a streaming response and reports the number of bytes. `signal` ends it early; the parts received so far
 * are returned.
 */
export async function download(
  path: string,
  query: Record<string, string>,
  onProgress: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<BlobPart[]> {
  const parameters = new URLSearchParams(query).toString();
  const parts: BlobPart[] = [];
  try {
    const response = await fetch(`/api/v1${path}${parameters ? `?${parameters}` : ''}`, {
      credentials: 'same-origin',
      signal,
    });
    if (!response.ok || !response.body) {
      const {
        code = '',
        message,
        hint = '',
      } = (await response.json().catch(() => ({}))) as { code?: string; message?: string; hint?: string };
      throw new Problem(
        response.status,
        code,
        message ?? `unexpected response: ${response.status} ${response.statusText}`,
        hint,
      );
    }
    const reader = response.body.getReader();
    let bytes = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value as Uint8Array<ArrayBuffer>);
      onProgress((bytes += value.length));
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
