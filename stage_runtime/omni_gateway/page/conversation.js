// The messages on the page, and what of them the next request must know.

import { preview } from "./attachments.js";
import { make } from "./elements.js";
import { Speech } from "./speech.js";

export class Conversation {
  /** Messages so far, as the API takes them. */
  history = [];

  /** `scroller` scrolls `list`; `announcer` is read aloud by screen readers. */
  constructor(list, scroller, announcer) {
    this.list = list;
    this.scroller = scroller;
    this.announcer = announcer;
  }

  get empty() {
    return this.list.childElementCount === 0;
  }

  clear() {
    this.history = [];
    this.list.replaceChildren();
    this.announcer.textContent = "";
  }

  addQuestion(text, files) {
    const item = make("li", { class: "message user" }, make("span", { class: "unseen" }, "You:"));
    item.append(...files.map(preview));
    if (text) item.append(make("p", { class: "text" }, text));
    this.#append(item);
  }

  addAnswer() {
    const answer = new Answer(this.announcer, () => this.#follow());
    this.#append(answer.element);
    return answer;
  }

  #append(item) {
    this.list.append(item);
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** Keep the end in sight, unless the reader has scrolled away from it. */
  #follow() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    if (scrollHeight - scrollTop - clientHeight < 160) this.scroller.scrollTop = scrollHeight;
  }
}

/** One answer, while it is made and after. */
export class Answer {
  text = "";
  speech = null;
  #announced = 0;
  #begun = performance.now();
  #firstText = null;
  #firstSound = null;

  constructor(announcer, changed) {
    this.announcer = announcer;
    this.changed = changed;
    this.words = make("p", { class: "text" });
    this.facts = make("div", { class: "facts" });
    this.element = make(
      "li",
      { class: "message assistant", "aria-busy": "true" },
      make("span", { class: "unseen" }, "Answer:"),
      this.words,
      this.facts,
    );
  }

  addText(delta) {
    if (!delta) return;
    this.#firstText ??= performance.now();
    this.text += delta;
    this.words.append(delta);
    this.#announce(false);
    this.changed();
  }

  addSpeech(base64) {
    if (!base64) return;
    this.#firstSound ??= performance.now();
    if (!this.speech) {
      this.speech = new Speech();
      this.words.after(this.speech.element);
    }
    this.speech.add(base64);
    this.changed();
  }

  /** The answer is complete, or as complete as it gets. `showTimes()` shows its stages' times. */
  finish(reason, showTimes) {
    this.element.setAttribute("aria-busy", "false");
    this.speech?.finish();
    this.#announce(true);
    const facts = [
      ["first word", this.#firstText],
      ["first sound", this.#firstSound],
      ["whole answer", performance.now()],
    ].filter(([, at]) => at !== null);
    const texts = facts.map(([name, at]) => `${name} ${duration((at - this.#begun) / 1000)}`);
    if (reason === "length") texts.push("cut at its greatest length");
    if (reason === "stopped") texts.push("stopped");
    this.facts.replaceChildren(...texts.map((text) => make("span", {}, text)));
    if (showTimes) {
      const button = make("button", { type: "button" }, "Time per stage");
      button.addEventListener("click", showTimes);
      this.facts.append(button);
    }
    this.changed();
  }

  /** Show why there is no answer; `retry()` asks again, `enterKey()` opens the API key's field. */
  fail(error, retry, enterKey) {
    this.element.setAttribute("aria-busy", "false");
    this.speech?.finish();
    const details = [error.code, error.param && `field ${error.param}`, error.status && `status ${error.status}`];
    const again = make("button", { type: "button" }, "Try again");
    again.addEventListener("click", retry);
    const box = make(
      "div",
      { class: "failure", role: "alert" },
      make("strong", {}, headline(error)),
      make("p", {}, error.message),
      make("p", { class: "faint" }, details.filter(Boolean).join(", ")),
      again,
    );
    if (error.status === 401) {
      const key = make("button", { type: "button" }, "Enter an API key");
      key.addEventListener("click", enterKey);
      again.before(key);
    }
    if (error.retryAfter) countDown(again, error.retryAfter);
    this.element.append(box);
    this.changed();
  }

  /** Whole sentences are announced: single words would interrupt each other. */
  #announce(all) {
    const rest = this.text.slice(this.#announced);
    const sentences = all ? rest : (rest.match(/^[\s\S]*[.!?:]\s/)?.[0] ?? "");
    if (!sentences) return;
    this.#announced += sentences.length;
    this.announcer.textContent = sentences;
  }
}

function headline(error) {
  if (error.status === 401) return "This gateway wants an API key";
  if (error.status === 429) return "Too many requests right now";
  if (error.status === 503) return "The pipeline is not ready";
  if (error.status >= 400 && error.status < 500) return "The gateway refused this message";
  return "The answer failed";
}

/** Hold a button back for some seconds, and say how many are left. */
function countDown(button, seconds) {
  const label = button.textContent;
  let left = Math.ceil(seconds);
  button.disabled = true;
  const tick = () => {
    button.textContent = left > 0 ? `${label} in ${left} s` : label;
    button.disabled = left > 0;
    if (left-- > 0) setTimeout(tick, 1000);
  };
  tick();
}

/** Seconds as people read them. */
export function duration(seconds) {
  if (seconds < 0.0995) return `${Math.max(0, seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}
