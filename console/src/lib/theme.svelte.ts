// Color theme: light, dark or system default, stored in the browser.

export type Theme = 'auto' | 'light' | 'dark';
const KEY = 'blockyard.theme';

class Themes {
  chosen = $state<Theme>('auto');

  constructor() {
    try {
      const kept = localStorage.getItem(KEY);
      if (kept === 'light' || kept === 'dark') this.choose(kept);
    } catch {
      /* without storage the theme starts as auto */
    }
  }

  choose(theme: Theme): void {
    this.chosen = theme;
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      /* as above */
    }
  }
}

export const themes = new Themes();
