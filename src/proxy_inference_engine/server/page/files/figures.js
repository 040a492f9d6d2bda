// From what the server has counted at two moments to what happened between them.

const sum = (stats, field) => Object.values(stats.models).reduce((total, model) => total + model[field], 0);

// The least bound that this share of what was observed lies within; within a bucket, evenly spread.
export function quantile(before, after, share) {
  const total = after.num_observed - before.num_observed;
  if (total <= 0) return null;
  let below = 0;
  let bound = 0;
  for (const [index, [end, num]] of after.buckets.entries()) {
    const within = num - before.buckets[index][1];
    if (within >= share * total) return bound + ((share * total - below) / Math.max(1, within - below)) * (end - bound);
    below = within;
    bound = end;
  }
  return bound;
}

const mean = (before, after) =>
  after.num_observed > before.num_observed ? (after.sum_s - before.sum_s) / (after.num_observed - before.num_observed) : null;

export function between(before, after) {
  const passed = after.time - before.time;
  const grown = (field) => Math.max(0, sum(after, field) - sum(before, field));
  const prompt = grown("total_prompt_tokens");
  const steps = grown("total_steps");
  const { first_token: first, inter_token: gap } = after.latencies;
  const old = before.latencies;
  return {
    generated: grown("total_generated_tokens") / passed,
    read: prompt / passed,
    firstMean: mean(old.first_token, first),
    firstHigh: quantile(old.first_token, first, 0.95),
    gapMean: mean(old.inter_token, gap),
    gapHigh: quantile(old.inter_token, gap, 0.95),
    running: sum(after, "num_running"),
    waiting: sum(after, "num_waiting"),
    batch: steps ? grown("total_generated_tokens") / steps : null,
    kv: sum(after, "num_kv_tokens"),
    maxKv: sum(after, "max_kv_tokens"),
    cached: sum(after, "cached_bytes"),
    maxCached: sum(after, "max_cached_bytes"),
    hits: prompt ? grown("total_prompt_tokens_cached") / prompt : null,
  };
}
