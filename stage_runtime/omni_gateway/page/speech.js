// Speech that plays while it arrives, drawn as a wave.

import { icon, make } from "./elements.js";
import { output, samplesOfBase64, SPEECH_RATE, wavBlob } from "./sound.js";

/** Time kept between arrival and playing at the start, so that an uneven network is not heard. */
const LEAD_SECONDS = 0.12;
const BAR_PIXELS = 4;

export class Speech {
  #pieces = [];
  #sources = [];
  #samples = 0;
  #peak = 0;
  #nextTime = 0; // of the context, when the next piece begins
  #spans = []; // {from, to, at}: which seconds of the speech play when
  #playing = true;
  #frame = 0;

  constructor() {
    this.toggle = make("button", { type: "button" });
    this.canvas = make("canvas", { role: "img" });
    this.length = make("span", { class: "length" });
    this.save = make("a", { download: "speech.wav", hidden: true }, "Save");
    this.element = make("div", { class: "speech" }, this.toggle, this.canvas, this.length, this.save);
    this.toggle.addEventListener("click", () => (this.#playing ? this.stop() : this.#replay()));
    this.#show();
  }

  get seconds() {
    return this.#samples / SPEECH_RATE;
  }

  /** The next piece, as the API sends it. */
  add(base64) {
    const piece = samplesOfBase64(base64);
    if (!piece.length) return;
    this.#pieces.push(piece);
    for (const sample of piece) this.#peak = Math.max(this.#peak, Math.abs(sample));
    if (this.#playing) this.#schedule(piece, this.seconds);
    this.#samples += piece.length;
    this.#show();
  }

  /** All of it has come. */
  finish() {
    this.save.href = URL.createObjectURL(wavBlob(this.#pieces, SPEECH_RATE));
    this.save.hidden = false;
    this.#show();
  }

  /** Be silent; what still comes is kept but not played. */
  stop() {
    this.#playing = false;
    for (const source of this.#sources) {
      source.onended = null;
      source.stop();
    }
    this.#sources = [];
    this.#spans = [];
    this.#show();
  }

  #replay() {
    this.#playing = true;
    this.#nextTime = 0;
    let seconds = 0;
    for (const piece of this.#pieces) {
      this.#schedule(piece, seconds);
      seconds += piece.length / SPEECH_RATE;
    }
    this.#show();
  }

  #schedule(piece, from) {
    const context = output();
    const buffer = context.createBuffer(1, piece.length, SPEECH_RATE);
    buffer.copyToChannel(piece, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    const at = Math.max(this.#nextTime, context.currentTime + (this.#sources.length ? 0 : LEAD_SECONDS));
    source.start(at);
    source.onended = () => this.#ended(source);
    this.#sources.push(source);
    this.#spans.push({ from, to: from + buffer.duration, at });
    this.#nextTime = at + buffer.duration;
  }

  #ended(source) {
    this.#sources = this.#sources.filter((one) => one !== source);
    // An answer that is still being made goes on with its next piece.
    if (!this.#sources.length && !this.save.hidden) {
      this.#playing = false;
      this.#spans = [];
    }
    this.#show();
  }

  #heard() {
    const now = output().currentTime;
    const span = this.#spans.findLast((one) => one.at <= now);
    return span ? Math.min(span.to, span.from + now - span.at) : 0;
  }

  #show() {
    const action = this.#playing ? "Stop the speech" : "Play the speech";
    if (this.toggle.getAttribute("aria-label") !== action) {
      this.toggle.setAttribute("aria-label", action);
      this.toggle.replaceChildren(icon(this.#playing ? "M7 7h10v10H7z" : "M8 5.5v13l11-6.5z"));
    }
    const length = `${this.seconds.toFixed(1)} s`;
    this.length.textContent = length;
    this.canvas.setAttribute("aria-label", `Wave of the speech, ${length}`);
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = 0;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = devicePixelRatio;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    context.fillStyle = getComputedStyle(this.element).color;
    const bars = Math.max(1, Math.floor(width / BAR_PIXELS));
    const heard = this.#playing ? this.#heard() / this.seconds : 1;
    this.#peaks(bars).forEach((peak, bar) => {
      const tall = Math.max(2, (peak / (this.#peak || 1)) * height);
      context.globalAlpha = bar / bars <= heard ? 1 : 0.4;
      context.fillRect(bar * BAR_PIXELS, (height - tall) / 2, BAR_PIXELS - 1.5, tall);
    });
    if (this.#sources.length) this.#frame = requestAnimationFrame(() => this.#draw());
  }

  #peaks(bars) {
    const peaks = new Float32Array(bars);
    // A look at every eighth sample is enough for a picture.
    let position = 0;
    for (const piece of this.#pieces) {
      for (let i = 0; i < piece.length; i += 8) {
        const bar = Math.min(bars - 1, Math.floor(((position + i) / this.#samples) * bars));
        peaks[bar] = Math.max(peaks[bar], Math.abs(piece[i]));
      }
      position += piece.length;
    }
    return peaks;
  }
}
