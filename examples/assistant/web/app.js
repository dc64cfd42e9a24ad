// The conversation: asks, reads typed events as they come, and puts each where it belongs.
// Text grows; a product that it names gets a card behind its sentence, which product, image and
// link events fill; notices stand where they came. Nothing from outside becomes markup.
"use strict";

const EXAMPLES = [
  "A blue tent for two people under $200",
  "Which trail shoes are waterproof?",
  "What is the cheapest yellow backpack?",
  "Compare the Solvarin Jade tent and the Lumeko Haze tent",
];
const SENTENCE_END = /[.!?…]["')\]]*(?=\s)/g;

const $ = (id) => document.getElementById(id);
const talk = $("talk"), question = $("question"), template = $("card");
const history = [];
let underWay = null; // AbortController of the answer that is being made
let answers = 0;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

class Answer {
  constructor() {
    this.root = element("article", "theirs going");
    this.prefix = `a${++answers}-`;
    this.text = "";
    this.cards = new Map(); // product id -> card
    this.row = null; // cards of the sentence that is being said
    this.began = performance.now();
    this.first = null;
    this.paragraph = this.root.appendChild(element("p"));
    talk.append(this.root);
  }

  take(kind, data) {
    const near = nearEnd();
    if (kind === "text") this.say(data.text);
    else if (kind === "mention") this.mention(data);
    else if (kind === "product") this.fill(data);
    else if (kind === "image") this.picture(data);
    else if (kind === "link") this.link(data);
    else if (kind === "notice") this.notice(data.message || "A part of the answer is missing.");
    else if (kind === "done") this.made(data.steps);
    if (near) toEnd();
  }

  say(text) {
    this.first ??= performance.now() - this.began;
    this.text += text;
    let rest = text;
    while (this.row && rest) { // the sentence that named something goes on before its cards
      const whole = this.paragraph.textContent + rest;
      SENTENCE_END.lastIndex = Math.max(0, this.paragraph.textContent.length - 4);
      const end = SENTENCE_END.exec(whole);
      if (!end) break;
      const at = end.index + end[0].length - this.paragraph.textContent.length;
      this.paragraph.append(rest.slice(0, Math.max(0, at)));
      rest = rest.slice(Math.max(0, at)).trimStart();
      this.endSentence();
    }
    if (!this.paragraph.textContent) rest = rest.trimStart();
    this.paragraph.append(rest);
  }

  endSentence() {
    this.root.append(this.row);
    this.row = null;
    this.paragraph = this.root.appendChild(element("p"));
  }

  mention({ id, title, number }) {
    const anchor = `${this.prefix}${id}`;
    const mark = element("a", "mark", String(number));
    mark.href = `#${anchor}`;
    mark.title = `Show ${title}`;
    mark.setAttribute("aria-label", `Show ${title}`);
    this.paragraph.append(mark);
    if (this.cards.has(id)) return;
    const card = template.content.firstElementChild.cloneNode(true);
    card.id = anchor;
    card.classList.add("waiting");
    card.querySelector(".name").textContent = title;
    this.cards.set(id, card);
    this.row ??= element("div", "cards");
    this.row.append(card);
  }

  fill({ id, title, price_cents, stock, rating, reviews }) {
    const card = this.cards.get(id);
    if (!card) return;
    card.classList.remove("waiting");
    card.querySelector(".name").textContent = title;
    card.querySelector(".facts").textContent =
      `★ ${rating.toFixed(1)} · ${reviews.toLocaleString("en")} reviews`;
    card.querySelector(".price").textContent = `$${(price_cents / 100).toFixed(2)}`;
    card.querySelector(".stock").textContent =
      stock === 0 ? "sold out" : stock < 5 ? `only ${stock} left` : "in stock";
  }

  picture({ product, url, alt }) {
    const frame = this.cards.get(product)?.querySelector(".picture");
    if (!frame) return;
    const image = element("img");
    image.alt = alt;
    image.src = url;
    image.onerror = () => { image.remove(); frame.parentElement.classList.add("missing"); };
    frame.replaceChildren(image);
  }

  link({ product, url, text }) {
    const card = this.cards.get(product);
    if (!card || !/^https?:/.test(url)) return;
    card.href = url;
    card.title = text;
  }

  notice(message) {
    const notice = element("p", "notice", message);
    notice.setAttribute("role", "status");
    this.root.append(notice);
  }

  failed(message, again) {
    const failed = element("p", "failed", message);
    failed.setAttribute("role", "alert");
    const button = element("button", "", "Ask again");
    button.type = "button";
    button.onclick = again;
    failed.append(button);
    this.root.append(failed);
  }

  made(steps) {
    const details = element("details", "made");
    const whole = (performance.now() - this.began) / 1000;
    const first = this.first === null ? "" : `first word after ${seconds(this.first / 1000)}, `;
    details.append(element("summary", "", `${first}all after ${seconds(whole)}`));
    const list = element("dl");
    for (const [step, outcome] of Object.entries(steps)) {
      list.append(element("dt", "", step), element("dd", "", outcome));
    }
    details.append(list);
    this.root.append(details);
  }

  end() {
    if (this.row) this.paragraph.after(this.row);
    this.row = null;
    this.root.classList.remove("going");
    for (const card of this.cards.values()) {
      if (!card.classList.contains("waiting")) continue;
      card.classList.replace("waiting", "missing");
      card.querySelector(".stock").textContent = "details are not there now";
    }
    for (const paragraph of this.root.querySelectorAll("p:empty")) paragraph.remove();
  }
}

function seconds(value) {
  return value < 0.0995 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
}

function nearEnd() {
  const page = document.documentElement;
  return page.scrollHeight - page.scrollTop - page.clientHeight < 120;
}

function toEnd() {
  window.scrollTo(0, document.documentElement.scrollHeight);
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      let kind = "message", data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event:")) kind = line.slice(6).trim();
        else if (line.startsWith("data:")) data += line.slice(5);
      }
      if (data) yield [kind, JSON.parse(data)];
    }
  }
}

async function ask(text) {
  if (underWay) return;
  underWay = new AbortController();
  working(true);
  $("start").hidden = true;
  $("anew").hidden = false;
  question.placeholder = "Ask on, or for something else";
  const mine = element("div", "mine");
  mine.append(element("p", "", text));
  talk.append(mine);
  const answer = new Answer();
  toEnd();
  let whole = false;
  try {
    const response = await fetch("ask", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ question: text, messages: history.slice(-8) }),
      signal: underWay.signal,
    });
    if (!response.ok) throw new Error((await response.json()).message || `status ${response.status}`);
    for await (const [kind, data] of events(response.body)) {
      const error = data.error || (kind === "error" && data);
      if (error) throw new Error(error.message || "the answer broke off");
      answer.take(kind, data);
      whole = kind === "done";
    }
    if (!whole) throw new Error("the answer broke off");
  } catch (error) {
    if (error.name === "AbortError") answer.notice("Stopped.");
    else answer.failed(`There is no answer: ${error.message}.`, () => ask(text));
  }
  answer.end();
  if (answer.text) {
    history.push({ role: "user", content: text }, { role: "assistant", content: answer.text });
  }
  underWay = null;
  working(false);
  toEnd();
}

function working(now) {
  $("send").hidden = now;
  $("stop").hidden = !now;
  talk.setAttribute("aria-busy", String(now));
  if (!now) question.focus();
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = question.value.trim();
  if (!text || underWay) return;
  question.value = "";
  ask(text);
});
$("stop").addEventListener("click", () => underWay?.abort());
$("anew").addEventListener("click", () => {
  underWay?.abort();
  history.length = 0;
  for (const each of talk.querySelectorAll(".mine, .theirs")) each.remove();
  $("start").hidden = false;
  $("anew").hidden = true;
  question.placeholder = EXAMPLES[0];
  question.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") underWay?.abort();
  if (event.key === "ArrowUp" && document.activeElement === question && !question.value) {
    const mine = talk.querySelectorAll(".mine p");
    if (mine.length) {
      event.preventDefault();
      question.value = mine[mine.length - 1].textContent;
    }
  }
});
talk.addEventListener("click", (event) => {
  const mark = event.target.closest?.(".mark");
  if (!mark) return;
  event.preventDefault();
  const card = document.getElementById(mark.hash.slice(1));
  for (const each of talk.querySelectorAll(".shown")) each.classList.remove("shown");
  card?.classList.add("shown");
  card?.scrollIntoView({ block: "nearest", behavior: "smooth" });
  card?.focus({ preventScroll: true });
});
for (const text of EXAMPLES) {
  const button = element("button", "", text);
  button.type = "button";
  button.onclick = () => ask(text);
  const item = element("li");
  item.append(button);
  $("examples").append(item);
}
