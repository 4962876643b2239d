// Documents: each is sent whole, translated by the server, and offered for download.

import { ask } from "./requests.js";
import { addElement, byId } from "./words.js";

// Translate a file, in a row of its own in the list of documents.
export async function translateDocument(file, { source_lang, target_lang }, list) {
  const working = new AbortController(), { signal } = working;
  const row = addElement("li", list);
  addElement("b", row, "", file.name).dir = "auto";
  const state = addElement("span", row);
  state.role = "status";
  state.textContent = "is being translated…";
  const progress = addElement("progress", row);
  progress.ariaLabel = `Translating ${file.name}`;
  const remove = addElement("button", row, "", "Cancel");
  remove.type = "button";
  let address = "";
  remove.addEventListener("click", () => {
    working.abort();
    URL.revokeObjectURL(address);
    row.remove();
    list.hidden = !list.children.length;
  });
  list.hidden = false;
  try {
    const onWait = seconds => { state.textContent = `waits for the server, which is busy: ${seconds} s`; };
    address = URL.createObjectURL(await translated(file, source_lang, target_lang, { signal, onWait }));
    state.textContent = "is translated.";
    const link = addElement("a", row, "", "Download");
    link.href = address;
    // As on the command line: report.docx and report.en.docx become report.it.docx.
    link.download = file.name.replace(RegExp(`(\\.${source_lang})?(\\.[^.]*)?$`), `.${target_lang}$2`);
    remove.before(link);
  } catch (error) {
    state.textContent = error.message;
    state.className = "error";
    byId("access").hidden &&= error.status !== 403;
  }
  progress.remove();
  remove.textContent = "Remove";
  remove.ariaLabel = `Remove ${file.name}`;
}

async function translated(file, source, target, options) {
  const body = new FormData();
  body.set("file", file);
  body.set("source", source ?? "auto");
  body.set("target", target);
  const answer = await (await ask("translate_file", { body, ...options })).json();
  // Only its name counts: behind a proxy, the server does not know its own address.
  const name = new URL(answer.translatedFileUrl, location).pathname.split("/").at(-1);
  const content = await (await ask(`download_file/${name}`, options)).blob();
  return content.slice(0, content.size, "application/octet-stream");  // never a page of this server
}
