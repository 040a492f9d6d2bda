"""Sampling as one would explain it, in float64 and plain lists: what the fast code is compared with."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from proxy_inference_engine.sampling.sampler import RandomStream, stream_key, uniform
from proxy_inference_engine.types import Sampling


def ranking(weights: Sequence[float]) -> list[int]:
    return sorted(range(len(weights)), key=lambda i: (-weights[i], i))


def top_k(weights: Sequence[float], num: int) -> list[int]:
    return sorted(ranking(weights)[:num])


def top_p(weights: Sequence[float], share: float) -> list[int]:
    kept: list[int] = []
    for i in ranking(weights):
        if kept and math.fsum(weights[k] for k in kept) >= share * math.fsum(weights):
            break
        kept.append(i)
    return sorted(kept)


def min_p(weights: Sequence[float], share: float) -> list[int]:
    return [i for i, weight in enumerate(weights) if weight >= share * max(weights)]


def typical_p(weights: Sequence[float], share: float) -> list[int]:
    shares = [weight / math.fsum(weights) for weight in weights]
    mean = -math.fsum(each * math.log(each) for each in shares if each)
    there = [i for i, each in enumerate(shares) if each]
    kept: list[int] = []
    for i in sorted(there, key=lambda i: abs(-math.log(shares[i]) - mean)):
        if math.fsum(shares[k] for k in kept) >= share:
            break
        kept.append(i)
    return sorted(kept)


def near_best(logits: Sequence[float], num: float) -> list[float]:
    """Without those more than so many standard deviations below the highest."""
    there = [logit for logit in logits if math.isfinite(logit)]
    mean = math.fsum(there) / len(there)
    spread = math.sqrt(math.fsum((logit - mean) ** 2 for logit in there) / len(there))
    return [logit if logit >= max(logits) - num * spread else -math.inf for logit in logits]


def temperature(logits: Sequence[float], sampling: Sampling) -> float:
    """Within its range, by the entropy of what the model says."""
    weights = [math.exp(logit - max(logits)) for logit in logits]
    shares = [weight / math.fsum(weights) for weight in weights if weight]
    entropy = -math.fsum(each * math.log(each) for each in shares) / math.log(len(shares)) if len(shares) > 1 else 0
    least = max(0.0, sampling.temperature - sampling.dynatemp_range)
    most = sampling.temperature + sampling.dynatemp_range
    return max(1e-12, least + (most - least) * math.pow(max(0.0, entropy), sampling.dynatemp_exponent))


def xtc(weights: Sequence[float], threshold: float) -> list[int]:
    """What is taken out."""
    above = [i for i in ranking(weights) if weights[i] > 0 and weights[i] >= threshold * math.fsum(weights)]
    return sorted(above[:-1])


def draw(weights: Sequence[float], number: float) -> int:
    target = number * math.fsum(weights)
    passed = 0.0
    for i, weight in enumerate(weights):
        passed += weight
        if passed > target:
            return i
    raise AssertionError("nothing to draw from")


def dry(token_ids: Sequence[int], sampling: Sampling) -> dict[int, float]:
    """Penalty by token: try every earlier end of a match and walk back."""
    lengths: dict[int, int] = {}
    for end in range(len(token_ids) - 1):
        length = 0
        while length <= end:
            token_id = token_ids[len(token_ids) - 1 - length]
            if token_ids[end - length] != token_id or token_id in sampling.dry_breakers:
                break
            length += 1
        next_id = token_ids[end + 1]
        if length >= max(1, sampling.dry_allowed_length) and next_id not in sampling.dry_breakers:
            lengths[next_id] = max(length, lengths.get(next_id, 0))
    return {
        next_id: sampling.dry_multiplier * sampling.dry_base ** (length - sampling.dry_allowed_length)
        for next_id, length in lengths.items()
    }


@dataclass
class SlowSampler:
    """The documented steps one by one. `nudge` shifts every border a little, to tell close calls."""

    sampling: Sampling
    choice: int
    prompt_ids: Sequence[int]
    nudge: float = 0.0
    output_ids: list[int] = field(default_factory=list)
    surprise: float | None = None  # the most that Mirostat lets through

    def sample(self, logits: Sequence[float], position: int, banned: Collection[int] = ()) -> int:
        adjusted = self.adjust(logits, banned)
        best = max(adjusted)
        if self.sampling.temperature == 0:
            return adjusted.index(best)
        if self.sampling.top_n_sigma:
            adjusted = near_best(adjusted, self.sampling.top_n_sigma + self.nudge)
        divisor = temperature(adjusted, self.sampling)
        weights = [math.exp((logit - best) / divisor) for logit in adjusted]
        key = stream_key(self.sampling.seed, self.choice)
        number = min(max(uniform(key, position) + self.nudge, 0.0), 1 - 1e-12)
        if self.sampling.mirostat:
            return self.unsurprising(weights, number)
        return draw(self.filter(weights, position), number)

    def unsurprising(self, weights: list[float], number: float) -> int:
        """Mirostat 2, whose token is taken."""
        most = 2 * self.sampling.mirostat_tau if self.surprise is None else self.surprise
        total = math.fsum(weights)
        kept = [i for i, weight in enumerate(weights) if weight and -math.log2(weight / total) <= most + self.nudge]
        weights = _keep(weights, kept or top_k(weights, 1))
        token_id = draw(weights, number)
        seen = -math.log2(weights[token_id] / math.fsum(weights))
        self.surprise = most - self.sampling.mirostat_eta * (seen - self.sampling.mirostat_tau)
        return token_id

    def adjust(self, logits: Sequence[float], banned: Collection[int]) -> list[float]:
        sampling = self.sampling
        adjusted = [float(logit) + sampling.logit_bias.get(i, 0.0) for i, logit in enumerate(logits)]
        for token_id in banned:
            adjusted[token_id] = -math.inf
        history = [*self.prompt_ids, *self.output_ids]
        window = sampling.repetition_window or len(history)
        for token_id in set(history[max(len(history) - window, 0) :]):
            positive = adjusted[token_id] > 0
            adjusted[token_id] *= 1 / sampling.repetition_penalty if positive else sampling.repetition_penalty
        for token_id in set(self.output_ids):
            count = self.output_ids.count(token_id)
            adjusted[token_id] -= count * sampling.frequency_penalty + sampling.presence_penalty
        for token_id, penalty in dry(history, sampling).items():
            adjusted[token_id] -= penalty
        return adjusted

    def filter(self, weights: list[float], position: int) -> list[float]:
        sampling = self.sampling
        if sampling.top_k:
            weights = _keep(weights, top_k(weights, sampling.top_k))
        if sampling.typical_p < 1:
            weights = _keep(weights, typical_p(weights, sampling.typical_p + self.nudge))
        if sampling.top_p < 1:
            weights = _keep(weights, top_p(weights, sampling.top_p + self.nudge))
        if sampling.min_p > 0:
            weights = _keep(weights, min_p(weights, sampling.min_p + self.nudge))
        if uniform(stream_key(sampling.seed, self.choice), position, RandomStream.XTC) < sampling.xtc_probability:
            removed = xtc(weights, sampling.xtc_threshold + self.nudge)
            weights = [0.0 if i in removed else weight for i, weight in enumerate(weights)]
        return weights


def _keep(weights: Sequence[float], indices: Collection[int]) -> list[float]:
    return [weight if i in indices else 0.0 for i, weight in enumerate(weights)]


def float32(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, dtype=np.float32)
