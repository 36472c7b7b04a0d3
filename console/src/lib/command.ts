// The command that does the same, as it is typed into a shell.

/** One word of a shell. */
export function word(text: string | number): string {
  const plain = String(text);
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(plain) ? plain : `'${plain.replaceAll("'", `'\\''`)}'`;
}

/** `blockyard` and these words; what is absent, empty or false is left out. */
export function blockyard(...words: (string | number | false | undefined | null)[]): string {
  return [
    'blockyard',
    ...words
      .filter((one): one is string | number => one !== false && one !== undefined && one !== null && one !== '')
      .map(word),
  ].join(' ');
}
