// Numbers as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(number) {
  let size = number ?? 0;
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size >= 10 || Number.isInteger(size) ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}

export function count(number) {
  if (number >= 1e9) return `${(number / 1e9).toFixed(1)} G`;
  if (number >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  if (number >= 10_000) return `${(number / 1e3).toFixed(0)} k`;
  return Number.isInteger(number) ? number.toLocaleString("en") : number.toFixed(number < 10 ? 1 : 0);
}

export function seconds(number) {
  if (number < 0.001) return `${Math.round(number * 1e6)} µs`;
  if (number < 1) return `${(number * 1e3).toFixed(number < 0.01 ? 1 : 0)} ms`;
  return number < 100 ? `${number.toFixed(number < 10 ? 2 : 1)} s` : `${Math.floor(number / 60)} min`;
}

export const percent = (share) => `${Math.round(share * 100)} %`;

export function ago(unix) {
  if (!unix) return "never";
  const passed = Date.now() / 1000 - unix;
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  return passed < 86_400 ? `${Math.floor(passed / 3600)} h ago` : new Date(unix * 1000).toLocaleDateString();
}
