// Samples: what browsers record and play, and the WAV and PCM that the API speaks.

/** Rate of the API's `pcm16`, in hertz. */
export const SPEECH_RATE = 24_000;
const RECORDING_RATE = 16_000;

/** Samples in [-1, 1] from little-endian 16-bit PCM in base64. */
export function samplesOfBase64(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const samples = new Float32Array(bytes.length >> 1);
  for (let i = 0; i < samples.length; i++) samples[i] = view.getInt16(2 * i, true) / 32768;
  return samples;
}

/** A mono 16-bit WAV file with these pieces, one after another. */
export function wavBlob(pieces, rate) {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * length));
  const word = (offset, text) => [...text].forEach((c, i) => view.setUint8(offset + i, c.charCodeAt(0)));
  word(0, "RIFF");
  view.setUint32(4, 36 + 2 * length, true);
  word(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  word(36, "data");
  view.setUint32(40, 2 * length, true);
  let offset = 44;
  for (const piece of pieces) {
    for (const sample of piece) {
      view.setInt16(offset, Math.max(-32768, Math.min(32767, Math.round(sample * 32768))), true);
      offset += 2;
    }
  }
  return new Blob([view], { type: "audio/wav" });
}

/** A sound file of any kind the browser knows, as mono WAV. */
export async function wavOfFile(blob) {
  const context = new OfflineAudioContext(1, 1, RECORDING_RATE);
  const decoded = await context.decodeAudioData(await blob.arrayBuffer());
  const mono = new Float32Array(decoded.length);
  for (let channel = 0; channel < decoded.numberOfChannels; channel++) {
    const samples = decoded.getChannelData(channel);
    for (let i = 0; i < mono.length; i++) mono[i] += samples[i] / decoded.numberOfChannels;
  }
  return wavBlob([mono], RECORDING_RATE);
}

/** The microphone: `start()`, then `stop()` gives what was said as a WAV file, or null. */
export class Microphone {
  #recorder = null;
  #pieces = [];

  get recording() {
    return this.#recorder !== null;
  }

  /** Begin; `heard(seconds)` is called once a second. */
  async start(heard) {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    this.#pieces = [];
    this.#recorder = new MediaRecorder(stream);
    this.#recorder.ondataavailable = (event) => {
      this.#pieces.push(event.data);
      if (this.recording) heard(this.#pieces.length);
    };
    this.#recorder.start(1000);
  }

  async stop() {
    const recorder = this.#recorder;
    this.#recorder = null;
    await new Promise((resolve) => {
      recorder.onstop = resolve;
      recorder.stop();
    });
    recorder.stream.getTracks().forEach((track) => track.stop());
    const recorded = new Blob(this.#pieces, { type: recorder.mimeType });
    if (!recorded.size) return null;
    const wav = await wavOfFile(recorded);
    return new File([wav], "recording.wav", { type: "audio/wav" });
  }
}

let shared = null;

/** The page's output; made by the first gesture that wants sound, as browsers demand. */
export function output() {
  shared ??= new AudioContext({ sampleRate: SPEECH_RATE });
  if (shared.state === "suspended") shared.resume();
  return shared;
}
