// Files that go with a message.

import { make } from "./elements.js";
import { wavOfFile } from "./sound.js";

const SOUND_FORMATS = { "audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3" };

export class Attachments {
  #files = [];

  /** `list` shows the files; `changed()` is called when they change. */
  constructor(list, changed) {
    this.list = list;
    this.changed = changed;
  }

  get empty() {
    return this.#files.length === 0;
  }

  add(files) {
    this.#files.push(...[...files].filter((file) => /^(image|audio|video)\//.test(file.type)));
    this.#show();
  }

  /** Return the files and forget them. */
  take() {
    const files = this.#files;
    this.#files = [];
    this.#show();
    return files;
  }

  #show() {
    this.list.replaceChildren(...this.#files.map((file) => this.#item(file)));
    this.changed();
  }

  #item(file) {
    const remove = make("button", { type: "button", "aria-label": `Remove ${file.name}` }, "×");
    remove.addEventListener("click", () => {
      this.#files = this.#files.filter((one) => one !== file);
      this.#show();
    });
    const name = make("span", { class: "name" }, file.name);
    const item = make("li", {}, name, remove);
    if (file.type.startsWith("image/")) {
      item.prepend(make("img", { src: URL.createObjectURL(file), alt: "" }));
    }
    return item;
  }
}

/** The content part of OpenAI's API that carries a file. */
export async function contentPart(file) {
  if (file.type.startsWith("image/")) {
    return { type: "image_url", image_url: { url: await dataUrl(file) } };
  }
  if (file.type.startsWith("video/")) {
    return { type: "video_url", video_url: { url: await dataUrl(file) } };
  }
  const format = SOUND_FORMATS[file.type];
  const sound = format ? file : await wavOfFile(file);
  const data = (await dataUrl(sound)).split(",")[1];
  return { type: "input_audio", input_audio: { data, format: format ?? "wav" } };
}

/** The element that shows a file in the conversation. */
export function preview(file) {
  const src = URL.createObjectURL(file);
  if (file.type.startsWith("image/")) return make("img", { src, alt: `Picture you sent: ${file.name}` });
  const name = file.type.startsWith("video/") ? "video" : "audio";
  return make(name, { src, controls: true, "aria-label": `You sent: ${file.name}` });
}

function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
