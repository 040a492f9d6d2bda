// What this browser keeps: conversations, pictures, the key. Where it keeps nothing, a map does until the page closes.

const STORES = ["talks", "pictures", "secrets"];
let opened = null;

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

class Disk {
  constructor(base) {
    this.base = base;
    this.isKept = true;
  }
  store(name) {
    return this.base.transaction(name).objectStore(name);
  }
  // Committed there and then: a page that is left or loaded anew takes back what only waits to be.
  change(name, make) {
    const transaction = this.base.transaction(name, "readwrite");
    const request = make(transaction.objectStore(name));
    transaction.commit();
    return done(request);
  }
  get(name, id) {
    return done(this.store(name).get(id));
  }
  all(name) {
    return done(this.store(name).getAll());
  }
  put(name, value, id) {
    return this.change(name, (store) => store.put(value, id));
  }
  remove(name, id) {
    return this.change(name, (store) => store.delete(id));
  }
}

class Memory {
  constructor() {
    this.stores = Object.fromEntries(STORES.map((name) => [name, new Map()]));
    this.isKept = false;
  }
  async get(name, id) {
    return this.stores[name].get(id);
  }
  async all(name) {
    return [...this.stores[name].values()];
  }
  async put(name, value, id) {
    this.stores[name].set(id, value);
  }
  async remove(name, id) {
    this.stores[name].delete(id);
  }
}

async function open() {
  const request = indexedDB.open("pie", 1);
  request.onupgradeneeded = () => STORES.forEach((name) => request.result.createObjectStore(name));
  return new Disk(await done(request));
}

// Small things, by name. A browser that keeps nothing gives null and takes nothing.
export const small = {
  get(name) {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(name, value);
    } catch {
      // It is full or shut: what was chosen holds until the page closes.
    }
  },
  // What was kept as JSON, if it is what was expected.
  read(name, fallback) {
    try {
      const kept = JSON.parse(localStorage.getItem(name));
      return kept && typeof kept === "object" && Array.isArray(kept) === Array.isArray(fallback) ? kept : fallback;
    } catch {
      return fallback;
    }
  },
};

export function database() {
  opened ??= (async () => open())().catch(() => new Memory());
  return opened;
}
