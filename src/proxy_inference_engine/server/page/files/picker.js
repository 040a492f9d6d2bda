// Which model is asked: the list that the server has, how far each is, and loading one before it is asked.

import { call, json } from "./api.js";
import { small } from "./database.js";
import { element } from "./dom.js";

const PLACE = "pie.model";
const SECOND = 1000;
const MOVING = ["waiting", "loading", "unloading"];

const label = (model) => (model.state === "ready" || !model.state ? model.id : `${model.id} · ${model.state}`);

// { element, value, … }: `value` is the chosen model's name. While one is being loaded the list is asked again.
// `first`: which of the list it is until somebody chooses, or the last one where there are fewer.
export function modelPicker(context, { place = PLACE, first = 0, onchange = () => {} } = {}) {
  const select = element("select", { "aria-label": "Model", class: "model-picker" });
  const told = element("span", { class: "load", "aria-live": "polite" });
  let models = [];
  let timer = null;
  let isOver = false;

  const chosen = () => models.find((each) => each.id === select.value);

  async function refresh() {
    clearTimeout(timer);
    try {
      models = (await json("v1/models")).data.filter((model) => !model.alias_of);
    } catch (error) {
      if (!isOver) context.fail(error);
      return;
    }
    if (isOver) return;
    const known = [select.value, small.get(place)].find((id) => models.some((model) => model.id === id));
    const wanted = known ?? models[Math.min(first, models.length - 1)]?.id;
    select.replaceChildren(
      ...models.map((model) => element("option", { value: model.id, textContent: label(model), selected: model.id === wanted })),
    );
    await showLoad();
    if (models.some((model) => MOVING.includes(model.state))) timer = setTimeout(refresh, SECOND);
  }

  // How far a load is, is the operator's to see; without their key the state is all there is.
  async function progress(id) {
    const status = await json("admin/models").catch(() => null);
    return status?.data.find((each) => each.id === id)?.progress ?? null;
  }

  async function showLoad() {
    const model = chosen();
    if (!model || model.state === "ready") return told.replaceChildren();
    if (!MOVING.includes(model.state)) {
      const load = element("button", { type: "button", class: "small", textContent: "Load now", onclick: () => begin(model.id) });
      return told.replaceChildren("loaded when it is asked", load);
    }
    const far = model.state === "loading" ? await progress(model.id) : null;
    const bar = element("progress", { "aria-label": `${model.id} is being loaded`, ...(far ? { value: far.share, max: 1 } : {}) });
    return told.replaceChildren(bar, far ? `${Math.round(far.share * 100)} %` : model.state);
  }

  async function begin(id) {
    try {
      await call(`admin/models/${encodeURIComponent(id)}/load`, { method: "POST" });
    } catch (error) {
      context.say(error.status === 403 ? "Loading by hand needs an admin's key. It is loaded when it is asked." : error.message, true);
    }
    await refresh();
  }

  select.addEventListener("change", () => {
    small.set(place, select.value);
    showLoad();
    onchange();
  });
  return {
    element: element("span", { class: "row picker" }, select, told),
    ready: refresh(),
    refresh,
    get value() {
      return select.value || "default";
    },
    get model() {
      return chosen();
    },
    stop() {
      isOver = true;
      clearTimeout(timer);
    },
  };
}
