// Requests to the server, and texts of any length in parts that fit into one.

import { load } from "./storage.js";

const PART = 1000;  // characters of a request: a long text appears as it is translated
const TEXTS = 32;  // of a request, by the server's limit
const PAUSE = 2;  // seconds until a busy server is asked again, if it names none
const NO_SPACES = /^(zh|ja|th|lo|km|my)\b/;  // languages without a space between sentences

// Ask the server, and ask a busy one again; onWait gets the seconds until then. Body: a form, or what becomes JSON.
// Throws an error with the status, if there was an answer.
export async function ask(path, { body, signal, onWait = () => {} } = {}) {
  const isForm = body instanceof FormData, key = load("key", "");
  const headers = { ...body && !isForm && { "Content-Type": "application/json" } };
  if (key) headers.Authorization = `Bearer ${key}`;
  for (;;) {
    const response = await fetch(path, {
      method: body ? "POST" : "GET", headers, signal, body: body && !isForm ? JSON.stringify(body) : body,
    }).catch(error => { throw signal?.aborted ? error : new Error(`Cannot reach the server: ${error.message}.`); });
    if (response.ok) return response;
    const { status } = response;
    if (![429, 503].includes(status)) throw Object.assign(new Error(await reasonOf(response)), { status });
    const seconds = Number(response.headers.get("Retry-After")) || PAUSE;
    onWait(seconds);
    await pause(1000 * seconds, signal);
  }
}

// Why a request failed: what the server says, or the status where a proxy answered with a page of its own.
async function reasonOf(response) {
  const { detail, error } = await response.json().catch(() => ({}));
  return detail ?? error ?? `The server answered ${response.status} ${response.statusText}.`;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

// ---- Parts: lines, in long lines sentences, and in long sentences words.

// The parts of a text, each with what follows its translation. The lengths are at most `most` characters, and no word
// is cut that is shorter than that. Lines are translated independently of each other, and so are parts.
export function split(text, most, target) {
  const joiner = NO_SPACES.test(target) ? "" : " ";
  const lines = text.split("\n");
  return lines.flatMap((line, i) => {
    const parts = pack(line, most);
    return parts.map((part, k) => ({
      text: part, after: k < parts.length - 1 ? joiner : i < lines.length - 1 ? "\n" : "",
    }));
  });
}

function pack(line, most) {
  if (line.length <= most) return [line];
  const parts = [""];
  for (const piece of pieces(line, most, ["sentence", "word"])) {
    if (parts.at(-1).length + piece.length > most) parts.push("");
    parts[parts.length - 1] += piece;
  }
  return parts.filter(Boolean);
}

function pieces(text, most, [granularity, ...finer]) {
  if (text.length <= most) return [text];
  if (!granularity) return text.match(new RegExp(`.{1,${Math.max(1, most >> 1)}}`, "gsu"));
  const segments = new Intl.Segmenter(undefined, { granularity }).segment(text);
  return Array.from(segments, each => each.segment).flatMap(each => pieces(each, most, finer));
}

// How many characters a request may have, by the server's limits; each line counts ten more.
export function roomOf({ characters, budgets }, candidates) {
  return Math.max(1, Math.min(PART, characters, Math.floor(budgets.max_work / (4 * candidates)) - 10));
}

// Put parts into groups for one request each.
export function* groups(parts, room) {
  let group = [], size = 0;
  for (const part of parts) {
    if (group.length === TEXTS || (group.length && size + part.text.length + 10 > room)) {
      yield group;
      [group, size] = [[], 0];
    }
    group.push(part);
    size += part.text.length + 10;
  }
  if (group.length) yield group;
}
