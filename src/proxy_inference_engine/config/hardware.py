"""What this process may use of the machine: cores and memory. Knows nothing of what they are used for."""

import os
from pathlib import Path


def available_cores(topology: Path = Path("/sys/devices/system/cpu"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Physical cores within the process's affinity and CPU quota: hyper-threads only slow a matrix product down."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_siblings(topology, cpu) for cpu in cpus}
    return max(1, min(len(cores), _quota(cgroup) or len(cores)))


def _siblings(topology: Path, cpu: int) -> str:
    """The hyper-threads that share a core with `cpu`: the same text for each of them."""
    try:
        return (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota(cgroup: Path) -> int | None:
    """CPUs a container may use, rounded up; None without a limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be taken now without swapping, within the container's limit; a guess where nobody says."""
    free = _meminfo_available(meminfo)
    if free is None:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 8 << 30
        free = pages // 2
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        return max(0, min(free, limit - used))
    except (OSError, ValueError):
        return free


def _meminfo_available(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
