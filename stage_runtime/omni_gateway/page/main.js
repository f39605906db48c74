// Puts the page together: the form sends a message, the answer streams into the conversation, and
// the picture beside it follows the pipeline.

import { Api } from "./api.js";
import { Attachments, contentPart } from "./attachments.js";
import { Conversation } from "./conversation.js";
import { isReady, showPipeline } from "./pipeline.js";
import { Settings } from "./settings.js";
import { Microphone, output } from "./sound.js";
import { showTimes } from "./times.js";

const IDLE_POLL_MS = 3000;
const BUSY_POLL_MS = 700;

const byId = (id) => document.getElementById(id);
const message = byId("message");
const settings = new Settings(byId("settings"));
const api = new Api(() => settings.get("api-key"));
const conversation = new Conversation(byId("messages"), byId("scroller"), byId("announcer"));
const attachments = new Attachments(byId("attachments"), () => {});
const microphone = new Microphone();

let audible = new Set();
let running = null; // the AbortController of the request that runs
let latest = null; // the answer that may still be speaking

// Asking

async function ask(text, files) {
  conversation.addQuestion(text, files);
  byId("welcome").hidden = true;
  byId("new-conversation").hidden = false;
  const parts = await Promise.all(files.map(contentPart));
  const content = parts.length ? [...parts, ...(text ? [{ type: "text", text }] : [])] : text;
  conversation.history.push({ role: "user", content });
  await answer();
}

/** Answer the last question of the history. */
async function answer() {
  latest?.speech?.stop();
  latest = conversation.addAnswer();
  running = new AbortController();
  setBusy(true);
  try {
    await stream(latest, running.signal);
  } catch (error) {
    fail(latest, error);
  } finally {
    running = null;
    setBusy(false);
  }
}

async function stream(shown, signal) {
  const { requestId, chunks } = await api.chat(requestBody(), signal);
  let reason = "stop";
  for await (const chunk of chunks) {
    const choice = chunk.choices?.[0];
    shown.addText(choice?.delta?.content ?? choice?.delta?.audio?.transcript);
    shown.addSpeech(choice?.delta?.audio?.data);
    reason = choice?.finish_reason ?? reason;
  }
  conversation.history.push({ role: "assistant", content: shown.text });
  shown.finish(reason, () => showRequest(requestId, true));
  // Not awaited: the next question need not wait for the picture of this one.
  showRequest(requestId, false);
}

function requestBody() {
  const instructions = settings.get("instructions");
  const messages = instructions
    ? [{ role: "system", content: instructions }, ...conversation.history]
    : conversation.history;
  const body = { model: byId("state-model").textContent, messages, modalities: ["text"] };
  if (!byId("speech").checked) return body;
  const voice = settings.get("voice");
  // Without `audio`, the model's own voice speaks, as pcm16 in a stream.
  return { ...body, modalities: ["text", "audio"], ...(voice && { audio: { voice, format: "pcm16" } }) };
}

function fail(shown, error) {
  if (error.name === "AbortError") {
    shown.speech?.stop();
    conversation.history.push({ role: "assistant", content: shown.text });
    shown.finish("stopped", null);
    return;
  }
  shown.fail(error, () => retry(shown), () => settings.open());
}

function retry(shown) {
  if (running) return;
  shown.element.remove();
  message.focus();
  answer();
}

function setBusy(busy) {
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
}

// The form

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = message.value.trim();
  if (running || (!text && attachments.empty)) return;
  if (byId("speech").checked) output();
  message.value = "";
  ask(text, attachments.take());
});

message.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("composer").requestSubmit();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || byId("settings").open) return;
  if (byId("chat").inert) {
    openPipeline(false);
    message.focus();
    return;
  }
  stop();
});

byId("stop").addEventListener("click", () => {
  stop();
  message.focus();
});

function stop() {
  running?.abort();
  latest?.speech?.stop();
}

byId("suggestions").addEventListener("click", (event) => {
  if (event.target.tagName !== "BUTTON") return;
  message.value = event.target.textContent;
  message.focus();
});

byId("new-conversation").addEventListener("click", () => {
  stop();
  conversation.clear();
  byId("welcome").hidden = false;
  byId("new-conversation").hidden = true;
  message.focus();
});

byId("attach").addEventListener("click", () => byId("files").click());
byId("files").addEventListener("change", (event) => {
  attachments.add(event.target.files);
  event.target.value = "";
  message.focus();
});
message.addEventListener("paste", (event) => attachments.add(event.clipboardData.files));

const composer = byId("composer");
composer.addEventListener("dragover", (event) => {
  event.preventDefault();
  composer.classList.add("dropping");
});
composer.addEventListener("dragleave", () => composer.classList.remove("dropping"));
composer.addEventListener("drop", (event) => {
  event.preventDefault();
  composer.classList.remove("dropping");
  attachments.add(event.dataTransfer.files);
});

byId("record").addEventListener("click", async () => {
  try {
    await toggleRecording();
  } catch (error) {
    notice(`The microphone cannot be used: ${error.message}`);
  }
  byId("record").setAttribute("aria-pressed", String(microphone.recording));
  byId("record").setAttribute("aria-label", microphone.recording ? "Stop recording" : "Record the microphone");
});

async function toggleRecording() {
  if (!microphone.recording) {
    await microphone.start((seconds) => notice(`Recording, ${seconds} s`));
    notice("Recording");
    return;
  }
  const file = await microphone.stop();
  notice(file ? "" : "Nothing was recorded.");
  if (file) attachments.add([file]);
}

/** Say something beside the tools, in place of the hint. */
function notice(text) {
  byId("notice").textContent = text;
  byId("hint").hidden = text !== "";
}

byId("open-settings").addEventListener("click", () => settings.open());
byId("settings").addEventListener("close", () => {
  message.focus();
  follow();
});

// The pipeline

const narrow = matchMedia("(max-width: 60rem)");

function openPipeline(open) {
  byId("pipeline").hidden = !open;
  // On a phone the picture lies over the conversation, which must not be reached beneath it.
  byId("chat").inert = open && narrow.matches;
  byId("show-pipeline").setAttribute("aria-expanded", String(open));
}

byId("show-pipeline").addEventListener("click", () => openPipeline(byId("pipeline").hidden));
narrow.addEventListener("change", () => openPipeline(!narrow.matches));
openPipeline(!narrow.matches);

async function showRequest(requestId, asked) {
  if (asked) {
    openPipeline(true);
    byId("pipeline").focus();
  }
  try {
    showTimes(await api.timeline(requestId), audible, byId("times"));
  } catch (error) {
    byId("times").textContent = error.message;
  }
}

function showState(state, text, model) {
  byId("state").dataset.state = state;
  byId("state-text").textContent = text;
  if (model) byId("state-model").textContent = model;
}

async function follow() {
  try {
    const pipeline = await api.pipeline();
    audible = new Set(pipeline.stages.filter((stage) => stage.modality === "audio").map((stage) => stage.name));
    showPipeline(pipeline, byId("picture"), byId("stage-list"));
    const waiting = pipeline.stages.filter((stage) => !isReady(stage)).length;
    if (pipeline.ready) showState("ready", "ready", pipeline.name);
    else showState("unready", `waiting for ${waiting} of ${pipeline.stages.length} stages`, pipeline.name);
  } catch (error) {
    showState("lost", error.status === 401 ? "wants an API key" : error.message);
  }
}

async function keepFollowing() {
  if (!document.hidden) await follow();
  setTimeout(keepFollowing, running ? BUSY_POLL_MS : IDLE_POLL_MS);
}

message.focus();
keepFollowing();
