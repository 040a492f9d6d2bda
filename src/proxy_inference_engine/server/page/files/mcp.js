// A client of MCP servers over streamable HTTP: what tools there are, and calling one when a person clicks.
// The browser lets this page speak only to addresses that the operator has listed.

import { events } from "./api.js";

const VERSION = "2025-06-18";
const MAX_PAGES = 20;
const sessions = new Map();

class McpSession {
  constructor(address) {
    this.address = address;
    this.id = null;
    this.version = null;
    this.last = 0;
  }

  headers() {
    const made = { "content-type": "application/json", accept: "application/json, text/event-stream" };
    if (this.id) made["mcp-session-id"] = this.id;
    if (this.version) made["mcp-protocol-version"] = this.version;
    return made;
  }

  async post(message) {
    let response;
    try {
      response = await fetch(this.address, {
        method: "POST",
        headers: this.headers(),
        body: JSON.stringify({ jsonrpc: "2.0", ...message }),
        credentials: "omit",
        redirect: "error",
      });
    } catch {
      throw new Error("The MCP server cannot be reached from this page: it is not there, or does not allow this origin (CORS).");
    }
    if (!response.ok) throw Object.assign(new Error(`The MCP server answered ${response.status}.`), { status: response.status });
    this.id = response.headers.get("mcp-session-id") ?? this.id;
    return response;
  }

  // The result of a request, which comes as one object or as an event of a stream.
  async ask(method, params) {
    const id = (this.last += 1);
    const response = await this.post({ id, method, params });
    const isStream = (response.headers.get("content-type") ?? "").startsWith("text/event-stream");
    for await (const message of isStream ? events(response) : [await response.json()]) {
      if (message.id !== id) continue;
      if (message.error) throw new Error(message.error.message ?? "The MCP server refused.");
      return message.result;
    }
    throw new Error("The MCP server gave no answer.");
  }

  async open() {
    const told = await this.ask("initialize", {
      protocolVersion: VERSION,
      capabilities: {},
      clientInfo: { name: "proxy-inference-engine", version: "1" },
    });
    this.version = told.protocolVersion;
    this.name = told.serverInfo?.name ?? this.address;
    await this.post({ method: "notifications/initialized" });
  }
}

async function session(address) {
  if (!sessions.has(address)) {
    const made = new McpSession(address);
    await made.open();
    sessions.set(address, made);
  }
  return sessions.get(address);
}

// A session that the server has forgotten (404) is opened anew, once. Nothing else is asked twice: a call may do things.
async function asked(address, method, params) {
  try {
    return await (await session(address)).ask(method, params);
  } catch (error) {
    if (error.status !== 404 || !sessions.delete(address)) throw error;
    return (await session(address)).ask(method, params);
  }
}

export async function tools(address) {
  const found = [];
  let cursor;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const told = await asked(address, "tools/list", cursor ? { cursor } : {});
    found.push(...(told.tools ?? []));
    cursor = told.nextCursor;
    if (!cursor) break;
  }
  return found;
}

const textOf = (part) => (part.type === "text" ? part.text : JSON.stringify(part));

// What a tool gave, as text.
export async function run(address, name, given) {
  const told = await asked(address, "tools/call", { name, arguments: given });
  const text = (told.content ?? []).map(textOf).join("\n");
  return told.isError ? `Error: ${text}` : text || JSON.stringify(told.structuredContent ?? null);
}
