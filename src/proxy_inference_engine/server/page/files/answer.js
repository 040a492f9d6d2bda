// One answer being written. The server makes it apart from this page (background), so a reload or a broken line in the
// middle of it picks the stream up again where it was.

import { ApiError, call, events } from "./api.js";
import { wait } from "./dom.js";

const MAX_TRIES = 5;
const SAVE_EVERY = 25; // events
const PATIENCE_MS = 1500;
const path = (turn, rest = "") => `v1/responses/${encodeURIComponent(turn.response)}${rest}`;
// A person did not write input[0].content[0]: what is wrong with it is enough.
const plain = (message) => message?.replace(/^Invalid value for 'input[^']*': (.)/, (_, first) => first.toUpperCase()) ?? null;
const seconds = (ms) => ms / 1000;

export class Answer {
  // `onchange` when there is more to show, `onsave` when it should be kept, `say` for what the server says meanwhile.
  constructor(turn, { onchange, onsave = () => {}, say = () => {} }) {
    Object.assign(this, { turn, onchange, onsave, say });
    this.controller = new AbortController();
    this.isStopped = false;
  }

  // Both resolve when the answer is over, whatever became of it; false: somebody left it alone. `body` may be on its way.
  begin(body) {
    const asked = async () => ({ ...(await body), stream: true, background: true, store: true });
    return this.follow(async () => call("v1/responses", { body: await asked(), signal: this.controller.signal }));
  }

  resume() {
    if (!this.turn.response) return this.end("It was interrupted before it began.");
    return this.follow(() => this.again());
  }

  again() {
    return call(path(this.turn, `?stream=true&starting_after=${this.turn.seen}`), { signal: this.controller.signal });
  }

  async follow(send) {
    for (let tries = 0; ; tries += 1) {
      try {
        const stream = events(await send(), this.say);
        for (;;) {
          const { value: event, done } = await stream.next();
          if (done) throw new ApiError(0, "The answer broke off.");
          tries = 0;
          this.take(event);
          if (this.turn.state !== "done") continue;
          // Over with its last event, not with the line: what is shown by then has to work.
          stream.next().catch(() => {});
          return this.end(null);
        }
      } catch (error) {
        if (error.name === "AbortError") return false;
        const isOver = error instanceof ApiError && error.status !== 0;
        if (isOver || !this.turn.response || tries >= MAX_TRIES) return this.end(error.message, error);
        this.say("The line broke; trying again…");
        await wait(300 * 2 ** tries);
        send = () => this.again();
      }
    }
  }

  end(message, error = null) {
    this.turn.state = "done";
    this.turn.error = plain(message);
    this.error = error;
    this.onsave();
    this.onchange();
    return true;
  }

  // The answer goes on without this page.
  leave() {
    this.controller.abort();
    this.onsave();
  }

  // The server is told; what was written until then comes with the stream's end.
  async stop() {
    this.isStopped = true;
    if (!this.turn.response) await wait(PATIENCE_MS); // what the server has begun can be ended only by its name
    if (this.turn.response) await call(path(this.turn, "/cancel"), { method: "POST" });
    else this.controller.abort();
  }

  take(event) {
    const { turn } = this;
    if (event.sequence_number !== undefined) turn.seen = event.sequence_number;
    const handle = TAKEN[event.type];
    if (handle) handle(turn, event);
    if (event.type === "response.created") this.say("");
    if (event.type === "response.created" || turn.seen % SAVE_EVERY === 0) this.onsave();
    this.onchange();
  }
}

function spoken(turn) {
  turn.firstAt ??= Date.now();
  if (turn.reasoning) turn.thoughtFor ??= seconds(Date.now() - turn.began);
}

const token = ({ token: text, logprob, bytes = null, top_logprobs: top }) => ({
  text,
  logprob,
  bytes,
  others: top.map((each) => ({ text: each.token, logprob: each.logprob, bytes: each.bytes ?? null })),
});

function finish(turn, { response }) {
  turn.state = "done";
  turn.isCut = response.incomplete_details?.reason === "max_output_tokens";
  turn.isStopped = response.status === "cancelled";
  if (turn.reasoning) turn.thoughtFor ??= seconds(Date.now() - turn.began);
  turn.figures = figures(turn, response);
}

function fail(message) {
  throw new ApiError(500, message ?? "The answer failed.");
}

// What the events of the stream mean to the turn.
const TAKEN = {
  "response.created": (turn, { response }) => {
    turn.response = response.id;
    turn.model = response.model;
  },
  "response.reasoning_text.delta": (turn, { delta }) => {
    turn.thinkAt ??= Date.now();
    turn.reasoning += delta;
  },
  "response.output_text.delta": (turn, { delta, logprobs }) => {
    spoken(turn);
    turn.text += delta;
    if (logprobs?.length) turn.tokens.push(...logprobs.map(token));
  },
  "response.output_item.added": (turn, { item }) => {
    if (item.type !== "function_call") return;
    spoken(turn);
    turn.calls.push({ call_id: item.call_id, name: item.name, arguments: item.arguments ?? "" });
  },
  "response.function_call_arguments.delta": (turn, { delta }) => {
    if (turn.calls.length) turn.calls.at(-1).arguments += delta;
  },
  "response.output_item.done": (turn, { item }) => {
    const found = item.type === "function_call" && turn.calls.find((each) => each.call_id === item.call_id);
    if (found) found.arguments = item.arguments;
  },
  "response.completed": finish,
  "response.incomplete": finish,
  "response.cancelled": finish,
  "response.failed": (turn, { response }) => fail(response.error?.message),
  error: (turn, event) => fail(event.message ?? event.error?.message),
};

// Measured here, from the question to the first token and from there to the last; over a break, by the server's clock.
function figures(turn, response) {
  const { usage } = response;
  const first = turn.thinkAt ?? turn.firstAt;
  const made = {
    tokens: usage?.output_tokens ?? null,
    input: usage?.input_tokens ?? null,
    cached: usage?.input_tokens_details?.cached_tokens ?? 0,
  };
  if (first && !turn.isResumed) {
    made.firstMs = first - turn.began;
    made.perSecond = made.tokens > 1 ? (made.tokens - 1) / Math.max(0.001, seconds(Date.now() - first)) : null;
  } else if (response.completed_at > response.created_at) made.perSecond = made.tokens / (response.completed_at - response.created_at);
  return made;
}
