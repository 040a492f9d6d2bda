"""How much may wait before a request is refused. Knows counts and keys, no queue."""

from collections.abc import Collection
from dataclasses import dataclass

from proxy_inference_engine.engine.embedding import EmbeddingJob
from proxy_inference_engine.errors import QueueFull
from proxy_inference_engine.types import Request


@dataclass(frozen=True, slots=True)
class Admission:
    """The limits. What can be computed at once may wait beside them."""

    max_waiting: int = 256
    max_waiting_per_tenant: int = 64
    max_waiting_tokens: int = 2_000_000

    def check_request(self, request: Request, waiting: Collection[Request], num_slots: int) -> None:
        """`waiting` has the requests that nothing came of yet. Raises QueueFull."""
        num_waiting = sum(other.num_choices for other in waiting)
        if num_waiting >= self.max_waiting + num_slots:
            raise QueueFull(f"{num_waiting} answers are waited for already; try again soon", retry_after_s=2)
        num_own = sum(other.num_choices for other in waiting if other.tenant == request.tenant)
        if num_own >= self.max_waiting_per_tenant + num_slots:
            raise QueueFull(f"this key waits for {num_own} answers already; try again soon", retry_after_s=2)
        num_tokens = sum(len(other.prompt_ids) for other in waiting) + len(request.prompt_ids)
        if waiting and num_tokens > self.max_waiting_tokens:
            raise QueueFull("too many prompt tokens are waiting already; try again soon", retry_after_s=5)

    def check_job(self, job: EmbeddingJob, waiting: Collection[EmbeddingJob]) -> None:
        """`waiting` has the jobs that are not over. Raises QueueFull."""
        if len(waiting) >= self.max_waiting:
            raise QueueFull(f"{len(waiting)} embedding requests wait already; try again soon", retry_after_s=2)
        num_own = sum(other.tenant == job.tenant for other in waiting)
        if num_own >= self.max_waiting_per_tenant:
            raise QueueFull(f"{num_own} embedding requests of this key wait already; try again soon", retry_after_s=2)
        if waiting and sum(other.num_tokens for other in waiting) + job.num_tokens > self.max_waiting_tokens:
            raise QueueFull("too many tokens wait to be embedded already; try again soon", retry_after_s=5)
