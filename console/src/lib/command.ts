// Equivalent shell commands.

/** Quotes one word for a shell. */
export function word(text: string | number): string {
  const plain = String(text);
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(plain) ? plain : `'${plain.replaceAll("'", `'\\''`)}'`;
}

/** Command line of `blockyard`; absent, empty and false words are omitted. */
export function blockyard(...words: (string | number | false | undefined | null)[]): string {
  return [
    'blockyard',
    ...words
      .filter((one): one is string | number => one !== false && one !== undefined && one !== null && one !== '')
      .map(word),
  ].join(' ');
}
