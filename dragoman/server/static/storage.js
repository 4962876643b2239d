// What the browser keeps for the reader: text, glossary, languages, a key, and a history if it is wanted. Browsers that
// keep nothing, or have no room, are not an error.

const PREFIX = "dragoman.";
const LONGEST = 50;  // entries of the history

export function load(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// Keep a value, or forget it if it is empty. Returns whether there was room.
export function save(name, value) {
  try {
    if (value?.length === 0) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function loadHistory() {
  const entries = load("history", []);
  return Array.isArray(entries) ? entries.filter(({ text, translation } = {}) => text && translation) : [];
}

// Add a translation; it replaces the same text, and the last one if the reader has only typed on.
export function addToHistory(entry) {
  const [last, ...rest] = loadHistory();
  const others = last && !entry.text.startsWith(last.text) ? [last, ...rest] : rest;
  const entries = [entry, ...others.filter(({ text, to }) => text !== entry.text || to !== entry.to)].slice(0, LONGEST);
  while (!save("history", entries) && entries.length) entries.pop();  // the oldest, until there is room
}

export function removeFromHistory(entry) {
  save("history", loadHistory().filter(({ text, to }) => text !== entry.text || to !== entry.to));
}
