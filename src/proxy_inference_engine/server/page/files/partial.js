// JSON that is still being written: as much of it as has come. What is not complete is marked, never guessed.

// { value, isOpen }; `value` of an object is a Map of such, of an array a list of such. Null: nothing has come.
export function partial(text) {
  const reader = { text, at: 0 };
  return read(reader);
}

function space(reader) {
  while (" \n\r\t".includes(reader.text[reader.at] ?? "x")) reader.at += 1;
}

function read(reader) {
  space(reader);
  const first = reader.text[reader.at];
  if (first === undefined) return null;
  if (first === "{") return readObject(reader);
  if (first === "[") return readArray(reader);
  if (first === '"') return readString(reader);
  const [word] = reader.text.slice(reader.at).match(/^[^\s,\]}]*/);
  reader.at += word.length;
  // The end of a number is known only by what follows it.
  const isOpen = reader.at >= reader.text.length;
  try {
    return { value: JSON.parse(word), isOpen };
  } catch {
    return { value: word, isOpen: true };
  }
}

function readString(reader) {
  const [raw] = reader.text.slice(reader.at).match(/^"(?:[^"\\]|\\.)*"?/s);
  reader.at += raw.length;
  try {
    return { value: JSON.parse(raw), isOpen: false };
  } catch {
    return { value: raw.slice(1).replace(/\\[^\\]?[0-9a-f]{0,3}$/, ""), isOpen: true };
  }
}

function readObject(reader) {
  const made = { value: new Map(), isOpen: true };
  reader.at += 1;
  for (;;) {
    space(reader);
    if (reader.text[reader.at] === "}") {
      reader.at += 1;
      made.isOpen = false;
      return made;
    }
    if (reader.text[reader.at] === ",") reader.at += 1;
    space(reader);
    if (reader.text[reader.at] !== '"') return made;
    const name = readString(reader);
    space(reader);
    if (name.isOpen || reader.text[reader.at] !== ":") return made;
    reader.at += 1;
    const value = read(reader);
    made.value.set(name.value, value ?? { value: null, isOpen: true, isEmpty: true });
    if (!value || value.isOpen) return made;
  }
}

function readArray(reader) {
  const made = { value: [], isOpen: true };
  reader.at += 1;
  for (;;) {
    space(reader);
    const next = reader.text[reader.at];
    if (next === undefined) return made;
    if (next === "]") {
      reader.at += 1;
      made.isOpen = false;
      return made;
    }
    if (next === ",") {
      reader.at += 1;
      continue;
    }
    const value = read(reader);
    if (!value) return made;
    made.value.push(value);
    if (value.isOpen) return made;
  }
}
