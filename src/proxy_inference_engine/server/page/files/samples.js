// A request to /v1/responses as curl, as Python for both clients, and as JavaScript.

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const MAX_URL = 80;

// Pictures are long: the code shows where one belongs.
const short = (body) =>
  JSON.parse(JSON.stringify(body, (name, value) => (name === "image_url" && value.length > MAX_URL ? "data:image/png;base64,..." : value)));

function python(value, indent = "") {
  const deeper = `${indent}    `;
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((each) => python(each, deeper))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each, deeper)}`);
  const [open, close] = isList ? "[]" : "{}";
  const line = `${open}${parts.join(", ")}${close}`;
  return line.length + indent.length < 90 && !line.includes("\n")
    ? line
    : `${open}\n${parts.map((part) => `${deeper}${part},\n`).join("")}${indent}${close}`;
}

const OPENAI = [
  "model",
  "input",
  "instructions",
  "temperature",
  "top_p",
  "max_output_tokens",
  "tools",
  "tool_choice",
  "reasoning",
  "include",
  "top_logprobs",
  "text",
];

function pythonArguments(body, known) {
  const own = Object.entries(body).filter(([name]) => known.includes(name));
  const others = Object.fromEntries(Object.entries(body).filter(([name]) => !known.includes(name)));
  const lines = own.map(([name, value]) => `    ${name}=${python(value, "    ")},`);
  if (Object.keys(others).length) lines.push(`    extra_body=${python(others, "    ")},`);
  return lines.join("\n");
}

// A call that was cut off has arguments that are no JSON; Anthropic's words have none for that.
function inputOf(text) {
  try {
    return JSON.parse(text || "{}");
  } catch {
    return {};
  }
}

// In Anthropic's words. Its messages have no reasoning items of ours; an image is a source.
function messages(body) {
  const turns = [];
  const push = (role, block) => (turns.at(-1)?.role === role ? turns.at(-1).content.push(block) : turns.push({ role, content: [block] }));
  for (const item of body.input) {
    if (item.type === "function_call")
      push("assistant", { type: "tool_use", id: item.call_id, name: item.name, input: inputOf(item.arguments) });
    else if (item.type === "function_call_output") push("user", { type: "tool_result", tool_use_id: item.call_id, content: item.output });
    else if (typeof item.content === "string" && item.role) push(item.role, { type: "text", text: item.content });
    else if (item.role) {
      for (const part of item.content)
        push(
          item.role,
          part.type === "input_image"
            ? { type: "image", source: { type: "base64", media_type: "image/png", data: "..." } }
            : { type: "text", text: part.text },
        );
    }
  }
  for (const turn of turns) if (turn.content.length === 1 && turn.content[0].type === "text") turn.content = turn.content[0].text;
  return turns;
}

function anthropic(body) {
  const made = { model: body.model, max_tokens: body.max_output_tokens ?? 1024, messages: messages(body) };
  if (body.instructions) made.system = body.instructions;
  for (const name of ["temperature", "top_p", "top_k"]) if (body[name] !== undefined) made[name] = body[name];
  if (body.stop) made.stop_sequences = body.stop;
  if (body.tools) made.tools = body.tools.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters }));
  return made;
}

// Its newest clients have no arguments for sampling any more; as a body they take it all.
const ANTHROPIC = ["model", "max_tokens", "messages", "system", "stop_sequences", "tools"];
const lines = (...all) => all.filter((line) => line !== null).join("\n");

const curl = (body, address, hasKey) =>
  lines(
    `curl ${address}/responses \\`,
    "  -H 'Content-Type: application/json' \\",
    hasKey ? "  -H 'Authorization: Bearer YOUR_KEY' \\" : null,
    `  -d ${quoted(JSON.stringify(body, null, 2))}`,
  );

const openai = (body, base, secret) =>
  lines(
    "# pip install openai",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${base}, api_key=${secret})`,
    "response = client.responses.create(",
    pythonArguments(body, OPENAI),
    ")",
    "print(response.output_text)",
  );

const anthropicPython = (body, base, secret) =>
  lines(
    "# pip install anthropic",
    "from anthropic import Anthropic",
    "",
    `client = Anthropic(base_url=${base}, api_key=${secret})`,
    "message = client.messages.create(",
    pythonArguments(anthropic(body), ANTHROPIC),
    ")",
    "print(message.content)",
  );

const javascript = (body, base, secret) =>
  lines(
    "// npm install openai",
    'import OpenAI from "openai";',
    "",
    `const client = new OpenAI({ baseURL: ${base}, apiKey: ${secret} });`,
    `const response = await client.responses.create(${JSON.stringify(body, null, 2)});`,
    "console.log(response.output_text);",
  );

// { title, language, text } of each. A key is never written out.
export function samples(given, hasKey, origin = new URL(".", location.href.split("#")[0]).href) {
  const body = short(given);
  const address = `${origin}v1`;
  const [base, root, secret] = [address, origin.replace(/\/$/, ""), hasKey ? "YOUR_KEY" : "none"].map((text) => JSON.stringify(text));
  return [
    { title: "curl", language: "shell", text: curl(body, address, hasKey) },
    { title: "Python (openai)", language: "python", text: openai(body, base, secret) },
    { title: "Python (anthropic)", language: "python", text: anthropicPython(body, root, secret) },
    { title: "JavaScript", language: "javascript", text: javascript(body, base, secret) },
  ];
}
